//go:build linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Override is one as a region answers it.
type Override struct {
	Version string           `json:"version"`
	Limits  map[string]int64 `json:"limits"`
}

// Units are those of the limit of the world's policies; 0 without an override.
func (o Override) Units() int64 { return o.Limits["limit"] }

// editEvery keeps a region below the edits that a caller may make in a second.
const editEvery = 150 * time.Millisecond

// SetOverride has a region give a tenant's limit other units, and with 0 those of the file. It returns the version that was made.
func (w *World) SetOverride(region, tenant string, units int64) (version string, err error) {
	time.Sleep(editEvery)
	method, body := "PUT", fmt.Sprintf(`{"limits":{"limit":%d},"reason":"chaos"}`, units)
	if units == 0 {
		method, body = "DELETE", ""
	}
	status, answer, err := w.region(region).admin.Do(method, "/v1/overrides/"+tenant, body)
	if err == nil && status != http.StatusOK {
		err = errors.New(string(answer))
	}
	var made Override
	if err == nil {
		err = json.Unmarshal(answer, &made)
	}
	if err != nil {
		return "", fmt.Errorf("%s: override of %s: %w", region, tenant, err)
	}
	return made.Version, nil
}

// Overrides are those in force in a region, by tenant.
func (w *World) Overrides(region string) (map[string]Override, error) {
	status, answer, err := w.region(region).admin.Do("GET", "/v1/overrides?limit=1000", "")
	if err == nil && status != http.StatusOK {
		err = errors.New(string(answer))
	}
	var page struct {
		Overrides []struct {
			Tenant string `json:"tenant"`
			Override
		} `json:"overrides"`
	}
	if err == nil {
		err = json.Unmarshal(answer, &page)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: overrides: %w", region, err)
	}
	all := map[string]Override{}
	for _, o := range page.Overrides {
		all[o.Tenant] = o.Override
	}
	return all, nil
}

// Limit is a tenant's limit as a region's checks go by it.
func (w *World) Limit(region, tenant string) (int64, error) { return w.region(region).limit(tenant) }
