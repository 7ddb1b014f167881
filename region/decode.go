package region

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regiond/regiond/internal/base/zones"
	"github.com/regiond/regiond/quota"
)

// Source is a YAML file that is decoded along the yaml tags of fields; ",required" after a name is checked here.
//
// Every mistake is noted and decoding goes on: a misspelled field is read as the one that is probably meant, and of what
// cannot be read nothing more is reported. Only what breaks a bound, or is no YAML, ends it.
type Source struct {
	values int
	depth  int
	places map[string]Place // of each value that was decoded, by pointer
	wrong  []Problem
	said   map[string]bool // pointers of those
	lost   map[string]bool // pointers of what cannot be read
	// lenient: text may be empty or look like a number, and a key without a value is as if it were not there.
	lenient bool
}

func decode(src []byte, dst any, lenient bool) (s *Source) {
	s = &Source{lenient: lenient, places: map[string]Place{}, said: map[string]bool{}, lost: map[string]bool{}}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case Problem: // of fail
			s.wrong, s.lost[""] = []Problem{p}, true
		default:
			panic(p)
		}
	}()
	s.decode(s.document(src), "", dst)
	return s
}

// Decode reads a file that belongs to a topology into the struct that dst points to, within the same bounds. Text may be
// empty or look like a number, and keys may be without values.
func Decode(src []byte, dst any) (*Source, []Problem) {
	s := decode(src, dst, true)
	return s, inOrder(s.wrong)
}

// Has reports whether the file has a value at a pointer.
func (s *Source) Has(pointer string) bool { _, ok := s.places[pointer]; return ok }

// At is the place of what a pointer names, or of the nearest thing around it that exists.
func (s *Source) At(pointer string) Place {
	for p := pointer; ; p = p[:strings.LastIndexByte(p, '/')] {
		if at, ok := s.places[p]; ok || p == "" {
			return Place{max(at.Line, 1), max(at.Column, 1), pointer}
		}
	}
}

// Problems are what is said of fields, where the file has them and in its order.
func (s *Source) Problems(of []quota.FieldError) []Problem { return inOrder(s.placed(of)) }

// placed is Problems in any order. Of what is mistaken already nothing more is said.
func (s *Source) placed(of []quota.FieldError) (all []Problem) {
	for _, m := range of {
		if !s.mistaken(m.Pointer) {
			all = append(all, Problem{Place: s.At(m.Pointer), Detail: m.Detail})
		}
	}
	return all
}

// mistaken reports whether a mistake of what a pointer names is noted, or something around it could not be read.
func (s *Source) mistaken(pointer string) bool {
	mistaken := s.said[pointer]
	for p := pointer; p != "" && !mistaken; {
		p = p[:strings.LastIndexByte(p, '/')]
		mistaken = s.lost[p]
	}
	return mistaken
}

func (s *Source) note(at Place, format string, args ...any) {
	s.wrong = append(s.wrong, Problem{Place: at, Detail: fmt.Sprintf(format, args...)})
	s.said[at.Pointer] = true
}

func (s *Source) fail(at Place, format string, args ...any) {
	panic(Problem{Place: at, Detail: fmt.Sprintf(format, args...)})
}

// count bounds what a file can have decoded.
func (s *Source) count(at Place) {
	if s.values++; s.values > maxFileValues {
		s.fail(at, "the file holds more than %d values, aliases followed", maxFileValues)
	}
}

// enter begins what is nested one level deeper, and returns what ends it.
func (s *Source) enter(at Place) (leave func()) {
	if s.depth > maxDepth {
		s.fail(at, "nested deeper than %d levels", maxDepth)
	}
	s.depth++
	return func() { s.depth-- }
}

type found struct {
	*value
	Place
}

func (s *Source) decode(of *value, pointer string, dst any) {
	s.count(of.at)
	defer s.enter(of.at)()
	v := found{of, Place{of.at.Line, of.at.Column, pointer}}
	for _, p := range v.wrong {
		s.note(Place{p.Line, p.Column, pointer + p.Pointer}, "%s", p.Detail)
	}
	if v.lost {
		s.lost[pointer] = true
	}
	if v.kind != unknown && (v.kind != nothing || !s.lenient) {
		s.places[pointer] = v.Place
		s.into(v, dst)
	}
}

// into is decode for a value that is noted.
func (s *Source) into(v found, dst any) {
	var err error
	switch p := dst.(type) {
	case *time.Duration:
		*p, err = time.ParseDuration(v.text)
		s.check(v, "a duration with a unit (ms, s, m or h) such as 500ms or 1m", inHours(v.text), err)
	case *netip.Prefix:
		*p, err = netip.ParsePrefix(v.text)
		s.check(v, "a prefix such as 10.0.0.0/8 or 192.0.2.7/32", "", err)
	case *slog.Level:
		if err = p.UnmarshalText([]byte(v.text)); strings.ToLower(p.String()) != v.text { // slog reads others too
			err = strconv.ErrSyntax
		}
		s.check(v, "one of debug, info, warn, error", "", err)
	case encoding.TextUnmarshaler:
		if s.want(v, "text", text, number) {
			if err := p.UnmarshalText([]byte(v.text)); err != nil {
				s.note(v.Place, "%v", err)
			}
		}
	case *any:
		*p = s.anything(v)
	case *quota.Limit:
		s.limit(v, p)
	case *Files:
		s.list(v, reflect.ValueOf(p).Elem())
	case *[]Domain:
		named(s, v, quota.ValidID, func(name string, d Domain) {
			d.Name = name
			*p = append(*p, d)
		})
	case *[]quota.DimensionSource:
		named(s, v, quota.ValidName, func(name string, d quota.DimensionSource) {
			d.Name = name
			*p = append(*p, d)
		})
	case *[]quota.Match:
		if s.want(v, "a mapping such as {route: login}", mapping) {
			named(s, v, quota.ValidName, func(name, value string) { *p = append(*p, quota.Match{Dimension: name, Value: value}) })
		}
	case *map[string]string: // a list stands for names that stay as they are
		*p = map[string]string{}
		if v.kind == sequence {
			var names []string
			s.list(v, reflect.ValueOf(&names).Elem())
			for _, name := range names {
				(*p)[name] = name
			}
		} else if s.want(v, "a list, or a mapping such as {gold: enterprise}", mapping) {
			named(s, v, quota.ValidID, func(value, name string) { (*p)[value] = name })
		}
	case *Tenants:
		p.Listed = map[string]quota.Tenant{}
		named(s, v, quota.ValidID, func(id string, t quota.Tenant) {
			if id == DefaultTenant {
				p.Default = &t
			} else {
				p.Listed[id] = t
			}
		})
	case *Compat:
		if *p = DefaultCompat; v.kind != truth {
			s.fields(v, reflect.ValueOf(p).Elem())
		} else if v.text != "true" {
			*p = Compat{}
		}
	default:
		s.plain(v, reflect.ValueOf(dst).Elem())
	}
}

// plain decodes into the kinds that Go has.
func (s *Source) plain(v found, dst reflect.Value) {
	switch dst.Kind() {
	case reflect.Pointer:
		to := reflect.New(dst.Type().Elem())
		if s.into(v, to.Interface()); !s.lost[v.Pointer] { // else it is as if it were not there
			dst.Set(to)
		}
	case reflect.Struct:
		s.fields(v, dst)
	case reflect.Slice:
		switch scalar := v.kind != mapping && v.kind != nothing; {
		case v.kind == sequence:
			s.list(v, dst)
		case scalar == (dst.Type().Elem().Kind() != reflect.Struct): // goes on as a list of one
			s.note(v.Place, "must be a list such as [%s], found %s", cmp.Or(visible(quota.Clip(v.text)), "{…}"), v)
			s.list(v, dst)
		default: // as a list of one that is not known
			s.want(v, "a list")
			dst.Set(reflect.MakeSlice(dst.Type(), 1, 1))
		}
	case reflect.String:
		dst.SetString(s.text(v))
	case reflect.Bool:
		s.want(v, "true or false", truth)
		dst.SetBool(slices.Contains([]string{"true", "yes", "on"}, v.text))
	case reflect.Int64, reflect.Int:
		dst.SetInt(s.whole(v))
	case reflect.Float64:
		dst.SetFloat(s.percent(v))
	default:
		panic("region: no way to decode a " + dst.Type().String())
	}
}

// list decodes the items of a list, or what stands for its only one.
func (s *Source) list(v found, dst reflect.Value) {
	items := []*value{v.value}
	if v.kind == sequence {
		items = v.items
	}
	dst.Set(reflect.MakeSlice(dst.Type(), len(items), len(items)))
	for i, own := range items {
		s.decode(own, quota.Item(v.Pointer, i), dst.Index(i).Addr().Interface())
	}
}

// concurrent is a limit of kind: concurrent as the file has it.
type concurrent struct {
	// Name is as of a limit with a window.
	Name string `yaml:"name,required"`
	// Kind is `concurrent`.
	Kind string `yaml:"kind,required"`
	// Units is how many reservations are open at once, `1` to `10000`, in this region.
	Units int64 `yaml:"units,required"`
	// TTL is how long a reservation lasts that does not say, 1s to 1h. Default: `1m`.
	TTL time.Duration `yaml:"ttl"`
	// Near is as of a limit with a window.
	Near float64 `yaml:"near"`
	// By is as of a limit with a window.
	By []string `yaml:"by"`
	// When is as of a limit with a window.
	When []quota.Match `yaml:"when"`
}

// limit decodes a limit: one with a window, one with a calendar, or one of kind: concurrent. Each has other fields.
func (s *Source) limit(v found, l *quota.Limit) {
	has := func(field string) bool {
		return slices.ContainsFunc(v.keys, func(e entry) bool { return e.key == field })
	}
	switch {
	case has("kind"):
		s.concurrent(v, l)
	case has("calendar") || !has("per") && slices.ContainsFunc(v.keys, func(e entry) bool { return typo(e.key, "calendar") < 3 }):
		s.calendar(v, l)
	default:
		s.fields(s.without(v, "needs calendar: hour, day, week or month, in place of per", "timezone", "anchor"), reflect.ValueOf(l).Elem())
	}
}

// without is a mapping without some of its fields, of which each that it has is a mistake.
func (s *Source) without(v found, why string, fields ...string) found {
	own := *v.value
	own.keys = nil
	for _, e := range v.keys {
		if slices.Contains(fields, e.key) {
			s.note(Place{e.at.Line, e.at.Column, quota.Under(v.Pointer, e.key)}, "%s", why)
		} else {
			own.keys = append(own.keys, e)
		}
	}
	return found{&own, v.Place}
}

// calendar is a limit with a calendar as the file has it.
type calendar struct {
	// Name is as of a limit with a window.
	Name string `yaml:"name,required"`
	// Units is how many units each period admits, in this region or under scope: global in all of them, `1` to `1099511627776`.
	Units int64 `yaml:"units,required"`
	// Calendar is what the periods are. Each begins with nothing used.
	Calendar quota.CalendarUnit `yaml:"calendar,required"`
	// Timezone is the name of the time zone whose clocks say when a period begins, such as Europe/Berlin. Default: `UTC`. The data of
	// zones are those that regiond was built with.
	Timezone timezone `yaml:"timezone"`
	// Anchor is the day on which a month begins, 1 to 31, and at most the last of a shorter one; or the weekday on which a week does,
	// monday to sunday. Without it: the first day, or monday.
	Anchor anchor `yaml:"anchor"`
	// Scope is region (counted and enforced by each region alone) or global (one limit for all regions: each period counts what all of
	// them have used in it). Default: `region`.
	Scope quota.Scope `yaml:"scope"`
	// MaxOvershoot is none, or 0% to 1000% with at most two decimals: how far all regions together may exceed a global limit, in
	// every period, whatever fails. Each region has its share by weight, and lends what it does not use. Default: `none`.
	// `on_store_loss` is then closed unless it is set.
	MaxOvershoot quota.Overshoot `yaml:"max_overshoot"`
	// Counts is as of a limit with a window. Default: `requests`.
	Counts quota.Counts `yaml:"counts"`
	// Near is as of a limit with a window, once a period.
	Near float64 `yaml:"near"`
	// By is as of a limit with a window.
	By []string `yaml:"by"`
	// When is as of a limit with a window.
	When []quota.Match `yaml:"when"`
}

// timezone is the name of one that there are data of.
type timezone struct{ *time.Location }

// UnmarshalText implements encoding.TextUnmarshaler.
func (z *timezone) UnmarshalText(text []byte) error {
	zone, err := zones.Load(string(text))
	if err != nil {
		return fmt.Errorf("%q %w", quota.Clip(string(text)), err)
	}
	z.Location = zone
	return nil
}

// anchor is a weekday, or a number.
type anchor string

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *anchor) UnmarshalText(text []byte) error {
	*a = anchor(text)
	return nil
}

func (s *Source) calendar(v found, l *quota.Limit) {
	c := calendar{Timezone: timezone{time.UTC}}
	s.fields(s.without(v, quota.CalendarHas, "per", "algorithm", "burst"), reflect.ValueOf(&c).Elem())
	periods := quota.Calendar{Unit: c.Calendar, Zone: c.Timezone.Location, Anchor: 1}
	if at := quota.Under(v.Pointer, "anchor"); s.Has(at) && !s.mistaken(at) && !s.mistaken(quota.Under(v.Pointer, "calendar")) {
		var err error
		if periods.Anchor, err = c.Calendar.ParseAnchor(string(c.Anchor)); err != nil {
			s.note(s.At(at), "%v", err)
		}
	}
	*l = quota.Limit{
		Name: c.Name, Units: c.Units, Window: c.Calendar.Window(), Algorithm: quota.CalendarPeriods, Calendar: &periods, Scope: c.Scope,
		MaxOvershoot: c.MaxOvershoot, Counts: c.Counts, Near: c.Near, By: c.By, When: c.When,
	}
}

func (s *Source) concurrent(v found, l *quota.Limit) {
	c := concurrent{TTL: quota.DefaultTTL}
	s.fields(s.without(v, quota.ConcurrentHas, "per", "algorithm", "scope", "burst", "counts", "max_overshoot"), reflect.ValueOf(&c).Elem())
	if at := quota.Under(v.Pointer, "kind"); c.Kind != "concurrent" && !s.mistaken(at) {
		s.note(s.At(at), "must be concurrent, is %q; a limit with a window has no kind", quota.Clip(c.Kind))
	}
	*l = quota.Limit{Name: c.Name, Units: c.Units, Window: c.TTL, Algorithm: quota.Concurrent, Near: c.Near, By: c.By, When: c.When}
}

// field is one of a struct, with what its tag says.
type field struct {
	reflect.Value
	required bool
}

func (s *Source) fields(v found, dst reflect.Value) {
	fields := map[string]field{}
	for i := range dst.NumField() {
		name, need, _ := strings.Cut(dst.Type().Field(i).Tag.Get("yaml"), ",")
		if name != "" { // else it is the key of the entry, not a field of it
			fields[name] = field{dst.Field(i), need == "required"}
		}
	}
	s.want(v, "a mapping", mapping)
	missing := maps.Clone(fields)
	for _, e := range v.keys {
		delete(missing, e.key)
	}
	for _, e := range v.keys {
		name := e.key
		if _, known := fields[name]; !known {
			name = s.unknown(e, v.Pointer, fields, missing)
		}
		if name != "" {
			s.decode(e.value, quota.Under(v.Pointer, name), fields[name].Addr().Interface())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if missing[name].required && !s.lost[v.Pointer] {
			s.note(Place{v.Line, v.Column, quota.Under(v.Pointer, name)}, "is missing and has no default")
		}
	}
}

// unknown notes a field that is not known. It returns the one of those missing that is probably meant, which is missing no
// more, or "".
func (s *Source) unknown(e entry, pointer string, known, missing map[string]field) (meant string) {
	at := Place{e.at.Line, e.at.Column, quota.Under(pointer, e.key)}
	least := 3
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		n := typo(strings.ReplaceAll(strings.ToLower(e.key), "-", "_"), name)
		if e.key != "" && strings.HasPrefix(name, e.key) {
			n = min(n, 2)
		}
		if n < least && n <= (len(name)+1)/2 {
			meant, least = name, n
		}
	}
	delete(missing, meant)
	if meant != "" {
		s.note(at, "unknown field %q; did you mean %q?", quota.Clip(e.key), meant)
	} else {
		s.note(at, "unknown field %q; known here: %s", quota.Clip(e.key), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return meant
}

// typo is how many characters of the longer one differ, from the first to the last that does.
func typo(a, b string) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b))
}

// named decodes the entries of a mapping and adds them, sorted by name.
func named[T any](s *Source, v found, valid func(string) error, add func(string, T)) {
	s.want(v, "a mapping", mapping)
	for _, e := range slices.SortedFunc(slices.Values(v.keys), func(a, b entry) int { return cmp.Compare(a.key, b.key) }) {
		pointer := quota.Under(v.Pointer, e.key)
		var own T
		s.decode(e.value, pointer, &own)
		if valid(e.key) != nil { // what Validate reports of it is about the name
			s.places[pointer] = e.at
		}
		add(e.key, own)
	}
}

// anything is a value as nil, bool, float64, string, []any or map[string]any.
func (s *Source) anything(v found) any {
	switch v.kind {
	case mapping:
		m := map[string]any{}
		named(s, v, quota.ValidID, func(key string, own any) { m[key] = own })
		return m
	case sequence:
		var list []any
		s.list(v, reflect.ValueOf(&list).Elem())
		return list
	case number:
		if f, err := strconv.ParseFloat(v.text, 64); err == nil {
			return f
		}
	case truth:
		return v.text == "true"
	case nothing:
		return nil
	}
	return v.text
}

func (s *Source) want(v found, what string, kinds ...kind) bool {
	ok := slices.Contains(kinds, v.kind)
	if !ok {
		s.note(v.Place, "must be %s, found %s", what, v)
		s.lost[v.Pointer] = true
	}
	return ok
}

// check notes a scalar that cannot be read as what it must be.
func (s *Source) check(v found, what, hint string, err error) {
	if s.want(v, what, text, number) && err != nil {
		s.note(v.Place, "must be %s, is %q%s", what, quota.Clip(v.text), hint)
	}
}

// inHours is a hint for durations in days or weeks.
func inHours(text string) string {
	for unit, hours := range map[string]uint64{"d": 24, "w": 7 * 24} {
		digits, ok := strings.CutSuffix(text, unit)
		if n, err := strconv.ParseUint(digits, 10, 16); ok && err == nil {
			return fmt.Sprintf("; write %dh", n*hours)
		}
	}
	return ""
}

// text is for fields that must contain something when they are there.
func (s *Source) text(v found) string {
	switch {
	case s.lenient && (v.kind == number || v.kind == truth || v.kind == text):
	case v.kind == number || v.kind == truth:
		s.note(v.Place, "must be text; write \"%s\" with quotes", visible(quota.Clip(v.text)))
	case s.want(v, "text", text) && v.text == "":
		s.note(v.Place, "must not be empty")
	}
	return v.text
}

// whole accepts plain decimals only: YAML takes 010 for eight.
func (s *Source) whole(v found) int64 {
	n, err := strconv.ParseInt(v.text, 10, 64)
	const what = "a whole number in plain decimals such as 600"
	switch plain := err == nil && strconv.FormatInt(n, 10) == v.text; {
	case errors.Is(err, strconv.ErrRange):
		s.note(v.Place, "is too large a number: %s", quota.Clip(v.text))
	case plain && v.kind == text:
		s.note(v.Place, "must be a whole number, found %s; write it without quotes", v)
	case s.want(v, what, number) && !plain:
		s.note(v.Place, "must be %s, found %s", what, quota.Clip(v.text))
	}
	return n
}

func (s *Source) percent(v found) float64 {
	digits, ok := strings.CutSuffix(v.text, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || strings.Trim(digits, "0123456789.") != "" || n > 100 {
		err = strconv.ErrRange
	}
	s.check(v, "a percentage between 0% and 100%, such as 10%", "", err)
	return n
}
