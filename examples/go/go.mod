module github.com/regiond/regiond/examples/go

go 1.25.0

require github.com/regiond/regiond/middleware v0.0.0

// Beside it in this repository; your own go.mod needs the first line alone.
replace github.com/regiond/regiond/middleware => ../../middleware
