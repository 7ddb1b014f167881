module github.com/regiond/regiond/middleware

go 1.25.0
