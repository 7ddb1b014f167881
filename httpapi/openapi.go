package httpapi

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var openapiYAML []byte

// openapi serves GET /v1/openapi.yaml to anyone: it says what is public anyway.
func (c *call) openapi() {
	c.write(http.StatusOK, []string{"application/yaml"}, openapiYAML)
}
