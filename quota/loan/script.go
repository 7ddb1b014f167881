package loan

import _ "embed"

// Script is loan.lua: Book in Redis.
//
//go:embed loan.lua
var Script string
