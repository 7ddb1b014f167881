package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/quota"
)

// DefaultTopRows is how many rows GET /v1/top has unless it is asked for more.
const DefaultTopRows = 20

// top serves GET /v1/top.
func (c *call) top() {
	q, errs := parseTop(c.query)
	if len(errs) > 0 {
		c.refuse(answer.Broken(quota.FaultInput, errs...))
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
	c.write(http.StatusOK, typeJSON, answer.JSON(report))
}

// parseTop reads a query as strictly as parseQuery does.
func parseTop(raw string) (quota.TopQuery, []quota.FieldError) {
	q := quota.TopQuery{Window: quota.TopWindows[0], Rows: DefaultTopRows}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, []quota.FieldError{{Detail: "the query is not well-formed: " + truncate(err.Error())}}
	}
	var errs []quota.FieldError
	for _, name := range slices.Sorted(maps.Keys(values)) {
		detail := "is duplicated in the query"
		if len(values[name]) == 1 {
			detail = topParameter(&q, name, values[name][0])
		}
		if detail != "" {
			errs = append(errs, quota.FieldError{Pointer: "/" + escapeToken(name), Detail: detail})
		}
		if len(errs) == maxParameters {
			break
		}
	}
	return q, errs
}

func topParameter(q *quota.TopQuery, name, value string) (detail string) {
	var err error
	switch name {
	case "by":
		err = q.By.UnmarshalText([]byte(value))
	case "scope":
		err = q.Scope.UnmarshalText([]byte(value))
	case "policy":
		q.Policy, err = value, quota.ValidName(value)
	case "window":
		q.Window, err = time.ParseDuration(value)
		if err != nil || !slices.Contains(quota.TopWindows[:], q.Window) {
			return "must be 1m or 1h, is " + truncate(value)
		}
	case "limit":
		q.Rows, err = strconv.Atoi(value)
		if err != nil || q.Rows < 1 || q.Rows > quota.MaxTopRows {
			return fmt.Sprintf("must be 1 to %d rows, is %s", quota.MaxTopRows, truncate(value))
		}
	default:
		return "is not a parameter here; there are: by, policy, window, scope, limit"
	}
	if err != nil {
		return truncate(err.Error())
	}
	return ""
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
