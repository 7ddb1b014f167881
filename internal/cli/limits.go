package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// overrideAnswer is an override, or what became of an edit, as regiond answers it.
type overrideAnswer struct {
	Tenant      string            `json:"tenant"`
	Version     string            `json:"version"`
	Policy      string            `json:"policy"`
	Enforcement string            `json:"enforcement"`
	Limits      map[string]int64  `json:"limits"`
	ExpiresAt   string            `json:"expires_at"`
	By          string            `json:"by"`
	Reason      string            `json:"reason"`
	SetAt       string            `json:"set_at"`
	Regions     map[string]string `json:"regions"`
	Ignored     []string          `json:"ignored"`
}

// changes says in words what the override changes.
func (a *overrideAnswer) changes() string {
	var parts []string
	if a.Policy != "" {
		parts = append(parts, "policy "+printable(a.Policy))
	}
	if a.Enforcement != "" {
		parts = append(parts, printable(a.Enforcement))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Limits)) {
		parts = append(parts, fmt.Sprintf("%s=%d", printable(name), a.Limits[name]))
	}
	return strings.Join(parts, " ")
}

// print writes the override for a person.
func (a *overrideAnswer) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", printable(a.Tenant), a.changes())
	if a.ExpiresAt != "" {
		fmt.Fprintf(w, "until %s\n", printable(a.ExpiresAt))
	}
	fmt.Fprintf(w, "set by %s at %s", printable(a.By), printable(a.SetAt))
	if a.Reason != "" {
		fmt.Fprintf(w, ": %s", printable(a.Reason))
	}
	fmt.Fprintf(w, "\nversion %s\n", printable(a.Version))
}

// printEdit writes what became of an edit.
func (a *overrideAnswer) printEdit(w io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(a.Regions)) {
		fmt.Fprintf(w, "%s: %s\n", printable(name), printable(a.Regions[name]))
	}
	if len(a.Ignored) > 0 {
		fmt.Fprintf(w, "ignored, since the tenant's policy has no such limit: %s\n", printable(strings.Join(a.Ignored, ", ")))
	}
}

// Limits is the command `limits`.
func Limits() *cobra.Command {
	c := &cobra.Command{
		Use:   "limits",
		Short: "Change what one tenant may use, at run time",
		Long: `Changes what one tenant may use, at run time and without a change of topology.yaml: an override. It is kept in each
region's Redis and is in force in a second, in all regions that are reached.`,
		Example: `  regiond limits set acme sustained=1200 --for 2h --reason "launch"
  regiond limits list`,
		Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(limitsSet(), limitsGet(), limitsList(), limitsUnset())
	return c
}

func overridePath(tenant string) string { return "/v1/overrides/" + url.PathEscape(tenant) }

func limitsSet() *cobra.Command {
	c := &cobra.Command{
		Use:   "set TENANT [LIMIT=UNITS ...]",
		Short: "Set the override of a tenant, in place of one that there is",
		Long: `Sets the override of a tenant, all of it: what an earlier one had set is gone. A limit keeps its window and what it counts
by; 0 units suspend it, and the tenant gets 429 without a time to retry.`,
		Example: `  regiond limits set acme sustained=1200 --for 2h --reason "launch"
  regiond limits set acme --policy enterprise`,
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) == 0 || words[0] == "" {
				return errors.New("takes a tenant, and limits such as sustained=1200")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	policy := policyFlag(c, "`policy` in place of the tenant's own")
	enforcement := f.String("enforcement", "", "`word` in place of the policy's: enforce or observe")
	lasts := f.Duration("for", 0, "`duration` after which it ends (default: never)")
	reason := f.String("reason", "", "`text` for who reads it later, a line of at most 256 bytes")
	Complete(c, "enforcement", "enforce", "observe")
	return calls(c, "admin", func(c *cobra.Command, t *target, words []string) error {
		send := map[string]any{}
		limits := map[string]int64{}
		for _, word := range words[1:] {
			name, number, _ := strings.Cut(word, "=")
			units, err := strconv.ParseInt(number, 10, 64)
			if _, twice := limits[name]; err != nil || name == "" || twice {
				return fmt.Errorf("%q is not one more limit with its units, such as sustained=1200", word)
			}
			limits[name] = units
		}
		if len(limits) > 0 {
			send["limits"] = limits
		}
		for name, value := range map[string]string{"policy": *policy, "enforcement": *enforcement, "reason": *reason} {
			if value != "" {
				send[name] = value
			}
		}
		switch {
		case *lasts > 0:
			send["expires_at"] = time.Now().Add(*lasts).UTC().Format(time.RFC3339)
		case c.Flags().Changed("for"):
			return fmt.Errorf("--for is a time to come, not %v", *lasts)
		}
		body, err := json.Marshal(send)
		if err != nil {
			return fmt.Errorf("encode the override: %w", err)
		}
		return t.edit(c, http.MethodPut, words[0], body)
	})
}

func limitsUnset() *cobra.Command {
	return calls(&cobra.Command{
		Use: "unset TENANT", SuggestFor: []string{"delete", "remove", "rm"}, Short: "End the override of a tenant",
		Args: oneTenant, ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Ends the override of a tenant: from now on it has what topology.yaml says.", Example: "  regiond limits unset acme",
	}, "admin", func(c *cobra.Command, t *target, words []string) error {
		return t.edit(c, http.MethodDelete, words[0], nil)
	})
}

// edit has the listener edit an override, and prints in which regions it is in force.
func (t *target) edit(c *cobra.Command, method, tenant string, send []byte) error {
	var v overrideAnswer
	return t.ask(c, method, overridePath(tenant), send, &v, func() bool { return len(v.Regions) > 0 }, v.printEdit)
}

func limitsGet() *cobra.Command {
	return calls(&cobra.Command{
		Use: "get TENANT", Short: "Show the override of a tenant", Args: oneTenant, ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Shows the override of a tenant: what it changes, who set it, when and why.", Example: "  regiond limits get acme -o json",
	}, "admin", func(c *cobra.Command, t *target, words []string) error {
		var v overrideAnswer
		return t.show(c, overridePath(words[0]), &v, func() bool { return v.Version != "" }, v.print)
	})
}

func limitsList() *cobra.Command {
	return calls(&cobra.Command{
		Use: "list", Short: "List the overrides of all tenants", Args: NoArgs,
		Long: "Lists the overrides that are in force, in no order that matters. As JSON it prints one a line.", Example: "  regiond limits list",
	}, "admin", func(c *cobra.Command, t *target, _ []string) error {
		for query := (url.Values{"limit": {"1000"}}); ; {
			var v struct {
				Overrides []json.RawMessage `json:"overrides"`
				Next      string            `json:"next_cursor"`
			}
			if _, err := t.fetch(c.Context(), http.MethodGet, "/v1/overrides?"+query.Encode(), nil, &v, func() bool { return v.Overrides != nil }); err != nil {
				return err
			}
			for _, line := range v.Overrides {
				if t.format == "json" {
					fmt.Fprintln(c.OutOrStdout(), string(line))
					continue
				}
				var o overrideAnswer
				if err := json.Unmarshal(line, &o); err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
				until := ""
				if o.ExpiresAt != "" {
					until = ", until " + printable(o.ExpiresAt)
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: %s%s\n", printable(o.Tenant), o.changes(), until)
			}
			if v.Next == "" {
				return nil
			}
			query.Set("cursor", v.Next)
		}
	})
}
