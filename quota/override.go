package quota

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Override is what one tenant has in place of what the topology says, set at run time. Values are immutable.
type Override struct {
	Tenant  string
	Version OverrideVersion
	// Deleted marks what was deleted: an older version of it that arrives later changes nothing. Only Tenant, Version, By and
	// Reason are set then.
	Deleted bool
	Policy  string // of the topology; "" leaves the tenant's own
	// Enforcement overrides the policy's and the tenant's when it is not nil.
	Enforcement *Enforcement
	// Limits are sorted by name, unique. Those that the policy in force does not have are ignored.
	Limits []OverrideLimit
	// ExpiresUS is when it ends, µs since 1970 by the clock of the region's store; 0 is never.
	ExpiresUS int64
	By        string // a valid id: who set it
	Reason    string // at most MaxReason bytes, without control characters
}

// OverrideLimit replaces the units of a limit.
type OverrideLimit struct {
	Name  string
	Units int64 // 0 admits nothing
}

// MaxReason bounds the reason of an Override, in bytes.
const MaxReason = 256

// MaxEdits is how many edits of a tenant's override a region keeps.
const MaxEdits = 20

// OverrideKept is for how long a deleted or expired override is kept, so that no older version of it comes back.
const OverrideKept = 30 * 24 * time.Hour

// OverrideVersion orders the versions of a tenant's override in all regions: the larger wins, whatever their order of arrival.
// Counter is one more than that of the version that it replaces, where it was set; so an edit wins over all that it has seen,
// and the other fields only order edits that did not see each other. A counter stays at its largest, and then the time grows with
// each edit. The zero value is no version.
type OverrideVersion struct {
	Counter int64
	WallUS  int64 // the store's clock where it was set, µs since 1970; with an equal Counter later than that of the version replaced
	Region  string
}

// Compare returns -1, 0 or +1.
func (v OverrideVersion) Compare(o OverrideVersion) int {
	return cmp.Or(cmp.Compare(v.Counter, o.Counter), cmp.Compare(v.WallUS, o.WallUS), cmp.Compare(v.Region, o.Region))
}

// Next is the version of an edit, at a TIME of a region's store, that replaces v. The time of v, which may be one of a clock that was
// ahead, is not passed on: other regions take in nothing that is far ahead.
func (v OverrideVersion) Next(nowUS int64, region string) OverrideVersion {
	if v.Counter >= maxOverrideUS-1 {
		return OverrideVersion{Counter: maxOverrideUS - 1, WallUS: max(nowUS, v.WallUS+1), Region: region}
	}
	return OverrideVersion{Counter: v.Counter + 1, WallUS: nowUS, Region: region}
}

// String is what answers, etags and stores have: "3.1795198405260197.eu-west"; "" for the zero value.
func (v OverrideVersion) String() string {
	if v == (OverrideVersion{}) {
		return ""
	}
	return fmt.Sprintf("%d.%d.%s", v.Counter, v.WallUS, v.Region)
}

// maxOverrideUS bounds times and counters of overrides: the year 2112. It is what messages between regions hold.
const maxOverrideUS = 1 << 52

func parseOverrideVersion(s string) (v OverrideVersion, ok bool) {
	counter, rest, _ := strings.Cut(s, ".")
	wall, name, _ := strings.Cut(rest, ".")
	var err, err2 error
	v.Counter, err = strconv.ParseInt(counter, 10, 64)
	v.WallUS, err2 = strconv.ParseInt(wall, 10, 64)
	v.Region = name
	inRange := v.Counter > 0 && v.Counter < maxOverrideUS && v.WallUS >= 0 && v.WallUS < maxOverrideUS
	return v, errors.Join(err, err2, ValidName(name)) == nil && inRange
}

// InForce reports whether the override changes anything at a TIME of the region's store.
func (o *Override) InForce(nowUS int64) bool {
	return o != nil && !o.Deleted && (o.ExpiresUS == 0 || nowUS < o.ExpiresUS)
}

// EndedUS is when the override was deleted or expires, µs since 1970; 0 is never.
func (o *Override) EndedUS() int64 {
	if o.Deleted {
		return o.Version.WallUS
	}
	return o.ExpiresUS
}

// Forgotten reports whether the override need not be kept any more.
func (o *Override) Forgotten(nowUS int64) bool {
	ended := o.EndedUS()
	return ended > 0 && nowUS-ended > OverrideKept.Microseconds()
}

// SameTerms reports whether two overrides change the same in the same way until the same time, whoever set them and why.
func (o *Override) SameTerms(p *Override) bool {
	if (o.Enforcement == nil) != (p.Enforcement == nil) || o.Enforcement != nil && *o.Enforcement != *p.Enforcement {
		return false
	}
	return o.Deleted == p.Deleted && o.Policy == p.Policy && o.ExpiresUS == p.ExpiresUS && slices.Equal(o.Limits, p.Limits)
}

// Units returns the units that replace those of a limit.
func (o *Override) Units(limit string) (units int64, ok bool) {
	for i := range o.Limits {
		if o.Limits[i].Name == limit {
			return o.Limits[i].Units, true
		}
	}
	return 0, false
}

// Text is the override without its tenant as one line, which ParseOverride reads:
//
//	1 3.1795198405260197.eu-west 0 enterprise observe sustained=1200 ops launch of the shop
//	│ │                          │ │          │       │              │   └ reason, to the end
//	│ version                    │ │          │       limits         by
//	format                 expires policy enforcement
//
// A "*" stands for what is not set, and a "!" in place of the policy for what was deleted: a name has neither.
func (o *Override) Text() string {
	policy, enforcement, limits := o.Policy, "", make([]string, len(o.Limits))
	if o.Deleted {
		policy = "!"
	}
	if o.Enforcement != nil {
		enforcement = o.Enforcement.String()
	}
	for i, l := range o.Limits {
		limits[i] = fmt.Sprintf("%s=%d", l.Name, l.Units)
	}
	word := func(s string) string { return cmp.Or(s, "*") }
	return fmt.Sprintf("1 %s %d %s %s %s %s %s", o.Version, o.ExpiresUS, word(policy), word(enforcement), word(strings.Join(limits, ",")), word(o.By), o.Reason)
}

var errOverrideText = errors.New("is not an override of this version of regiond")

// ParseOverride reads what Text has written about a tenant. It accepts nothing else.
func ParseOverride(tenant, text string) (*Override, error) {
	f := strings.SplitN(text, " ", 8)
	if len(f) != 8 || f[0] != "1" {
		return nil, errOverrideText
	}
	o := &Override{Tenant: tenant, Reason: f[7]}
	var ok bool
	if o.Version, ok = parseOverrideVersion(f[1]); !ok {
		return nil, errOverrideText
	}
	var err error
	if o.ExpiresUS, err = strconv.ParseInt(f[2], 10, 64); err != nil || o.ExpiresUS < 0 || o.ExpiresUS >= maxOverrideUS {
		return nil, errOverrideText
	}
	switch f[3] {
	case "*":
	case "!":
		o.Deleted = true
	default:
		o.Policy, err = f[3], ValidName(f[3])
	}
	if f[4] != "*" {
		o.Enforcement = new(Enforcement)
		err = errors.Join(err, o.Enforcement.UnmarshalText([]byte(f[4])))
	}
	if f[5] != "*" {
		for l := range strings.SplitSeq(f[5], ",") {
			name, number, _ := strings.Cut(l, "=")
			units, err2 := strconv.ParseInt(number, 10, 64)
			err = errors.Join(err, err2, ValidName(name))
			o.Limits = append(o.Limits, OverrideLimit{name, units})
		}
	}
	if f[6] != "*" {
		o.By = f[6]
	}
	if err != nil || ValidID(tenant) != nil || len(o.validate()) > 0 {
		return nil, errOverrideText
	}
	return o, nil
}

// Validate returns every error of an override that a person has written, with pointers into its JSON. What depends on the
// topology is not its own: see package overrides.
func (o *Override) Validate(nowUS int64) []FieldError {
	ms := o.validate()
	ms.When(o.Policy == "" && o.Enforcement == nil && len(o.Limits) == 0, "",
		"changes nothing: it has neither policy, enforcement nor limits; delete the override to end it")
	ms.When(o.ExpiresUS != 0 && o.ExpiresUS <= nowUS, "/expires_at", "is over: the region's clock says %s", TimeText(nowUS))
	return ms
}

func (o *Override) validate() (ms FieldErrors) {
	if o.Policy != "" {
		ms.Check("/policy", ValidName(o.Policy))
	}
	ms.When(len(o.Limits) > MaxLimits, "/limits", "a policy has at most %d limits, this has %d", MaxLimits, len(o.Limits))
	for i, l := range o.Limits {
		at := "/limits/" + Clip(l.Name)
		ms.Check(at, ValidName(l.Name))
		ms.Between(at, l.Units, 0, MaxUnits)
		ms.When(i > 0 && o.Limits[i-1].Name >= l.Name, at, "is duplicated")
	}
	ms.When(o.ExpiresUS < 0 || o.ExpiresUS >= maxOverrideUS, "/expires_at", "must be between 1970 and 2112")
	ms.When(len(o.Reason) > MaxReason, "/reason", "must be at most %d bytes, has %d", MaxReason, len(o.Reason))
	ms.When(strings.ContainsFunc(o.Reason, func(r rune) bool { return r < ' ' || r == 0x7f }), "/reason", "must be one line without control characters")
	return ms
}

// TimeText is a time of a store, µs since 1970, in RFC 3339 and UTC.
func TimeText(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339Nano) }

// Edit is what is to become of a tenant's override.
type Edit struct {
	Override Override // Tenant, By and Reason, and where it is not Deleted what it says; without Version
	// IfMatch is the version that is to be replaced, "" for any. IfNone wants none to be in force.
	IfMatch string
	IfNone  bool
}

// Edited is what became of an Edit.
type Edited struct {
	Version OverrideVersion
	// Refused is whether a condition did not hold; nothing was changed then, and Version is the one in force, zero for none.
	Refused bool
	// Before and After are the overrides in force before and after it, nil for none. They are equal where nothing changed.
	Before, After *Override
	// Ignored are the limits that the policy in force does not have.
	Ignored []string
	// Regions says of each region of the topology whether the override is in force there.
	Regions []RegionEdit
}

// RegionEdit is what became of an Edit in one region: "applied", or "not reached": it has the override when it is reached.
type RegionEdit struct{ Region, Result string }

// Results of a RegionEdit.
const (
	EditApplied    = "applied"
	EditNotReached = "not reached"
)

// Describe says in words what an override changes: "policy enterprise, sustained 1200".
func (o *Override) Describe() string {
	if o == nil {
		return "none"
	}
	var parts []string
	if o.Policy != "" {
		parts = append(parts, "policy "+o.Policy)
	}
	if o.Enforcement != nil {
		parts = append(parts, o.Enforcement.String())
	}
	for _, l := range o.Limits {
		parts = append(parts, fmt.Sprintf("%s %d", l.Name, l.Units))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// Times is a factor, MinTimes…MaxTimes: "10x" in a topology.
type Times int64

// Bounds of Times.
const (
	MinTimes = Times(1)
	MaxTimes = Times(1000)
)

var errTimes = errors.New("must be a whole number between 1x and 1000x, such as 10x")

// UnmarshalText reads "10x".
func (t *Times) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "x")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < int64(MinTimes) || n > int64(MaxTimes) || number != strconv.FormatInt(n, 10) {
		return fmt.Errorf("%w, is %q", errTimes, Clip(string(text)))
	}
	*t = Times(n)
	return nil
}

// String is what UnmarshalText reads.
func (t Times) String() string { return strconv.FormatInt(int64(t), 10) + "x" }

// Sort puts the limits in order.
func (o *Override) Sort() {
	slices.SortFunc(o.Limits, func(a, b OverrideLimit) int { return strings.Compare(a.Name, b.Name) })
}
