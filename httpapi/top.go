package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/input"
)

// top serves GET /v1/top.
func (c *call) top() {
	q, errs := input.Top(c.query)
	if c.broken(errs) {
		return
	}
	report, err := c.Top(q)
	if err != nil {
		c.failed(err, "not ranked", noDecision)
		return
	}
	if why := c.hidesTenants(); why != "" {
		report.Notes = append(report.Notes, why)
		for i := range report.Rows {
			row := &report.Rows[i]
			row.Tenant, row.Partition = c.pseudonym(row.Tenant), c.partitionPseudonym(row.Partition)
		}
	}
	c.json(report)
}

// hidesTenants is why callers of the admin listener see no names of tenants, "" where they do.
func (c *call) hidesTenants() string {
	if access.IsLoopback(c.host) || !c.settings.Access.AdminIsOpen() {
		return ""
	}
	return "Tenants are shown as hashes: the admin listener is not on loopback, and anybody may call it. " +
		"Set access.admin_tokens_file or access.admin_client_names in topology.yaml to see names."
}

// pseudonym stands for a tenant as long as this process lives. It has a secret key, since names
// of tenants can be guessed.
func (h *Handler) pseudonym(tenant string) string {
	if tenant == "" {
		return ""
	}
	mac := hmac.New(sha256.New, h.secret[:])
	mac.Write([]byte(tenant))
	return "#" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// partitionPseudonym keeps the names of a partition's dimensions, and what depends on no value.
func (h *Handler) partitionPseudonym(partition string) string {
	by, _, _ := strings.Cut(partition, ":")
	if by == "" {
		return partition
	}
	return by + ":" + h.pseudonym(partition)
}
