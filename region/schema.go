package region

import _ "embed"

// Schema is the JSON Schema (draft 2020-12) of a topology.yaml, for editors. It has every key, type and range, and what each
// key means. What rests on several keys only Parse knows.
//
//go:embed schema.json
var Schema []byte
