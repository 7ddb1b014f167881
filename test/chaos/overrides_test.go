//go:build chaos && linux

package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
)

// TestOverrides: both sides of a cut edit the same overrides under load, some twice and some by a deletion. Each region goes by
// its own at once; after the heal all have the larger version of each. A regiond that restarts while its region is cut off has them
// from its Redis, and one that begins with an empty Redis from the others, but for those that are deleted.
func TestOverrides(t *testing.T) {
	w := chaos.Start(t, world())
	holders := w.Hold(1)
	const tenants = 12
	name := func(i int) string { return fmt.Sprintf("edited-%02d", i) }
	largest := map[string]string{} // version made, by tenant
	units := map[string]int64{}    // that it stands for
	set := func(region string, i int, n int64) {
		t.Helper()
		version, err := w.SetOverride(region, name(i), n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			if got, err := w.Limit(region, name(i)); err != nil || got != n {
				t.Errorf("%s was given %d in %s, which goes by %d: %v", name(i), n, region, got, err)
			}
		}
		if newer(version, largest[name(i)]) {
			largest[name(i)], units[name(i)] = version, n
		}
	}
	for i := range tenants / 2 { // the others have none before
		set(ap, i, 500+int64(i))
	}
	converged := func(within time.Duration) {
		t.Helper()
		want := map[string]string{}
		for tenant, version := range largest {
			if units[tenant] > 0 {
				want[tenant] = version
			}
		}
		late := ""
		for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			late = ""
			for _, region := range chaos.Names() {
				all, err := w.Overrides(region)
				got := map[string]string{}
				for tenant, o := range all {
					got[tenant] = o.Version
					if err == nil && o.Units() != units[tenant] {
						err = fmt.Errorf("%s has %d units, not %d", tenant, o.Units(), units[tenant])
					}
				}
				if err != nil || !maps.Equal(got, want) {
					late += fmt.Sprintf("%s has %v, want %v; %v\n", region, got, want, err)
				}
			}
			if late == "" {
				return
			}
		}
		t.Errorf("after %v:\n%s", within, late)
	}
	converged(10 * time.Second)

	cut := w.Partition([]string{eu}, []string{us, ap})
	if err := cut.Inject(); err != nil {
		t.Fatal(err)
	}
	for i := range tenants {
		before := i < tenants/2
		if i%3 != 0 || before {
			set(eu, i, []int64{0, 1000 + int64(i), 1000 + int64(i)}[i%3])
		}
		if i%3 != 1 || before {
			set(us, i, []int64{2000 + int64(i), 0, 2000 + int64(i)}[i%3])
		}
		if i%2 == 1 { // the side that edits twice wins
			set(eu, i, 3000+int64(i))
		}
	}
	if err := cut.Heal(); err != nil {
		t.Error(err)
	}
	converged(20 * time.Second)

	do := func(steps ...func() error) {
		t.Helper()
		for _, step := range steps {
			if err := step(); err != nil {
				t.Error(err)
			}
		}
	}
	goesBy := func() {
		t.Helper()
		end := time.Now().Add(10 * time.Second)
		for tenant, n := range units {
			got, err := w.Limit(ap, tenant)
			for ; err != nil && time.Now().Before(end); got, err = w.Limit(ap, tenant) { // it starts, or reads too slowly
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil || got != cmp.Or(n, chaos.LedgerUnits) {
				t.Errorf("%s goes by %d for %s, not %d: %v", ap, got, tenant, cmp.Or(n, chaos.LedgerUnits), err)
			}
		}
	}
	alone, restart := w.Partition([]string{ap}, []string{eu, us}), w.Kill(chaos.Regiond, ap)
	do(alone.Inject, restart.Inject, restart.Heal)
	goesBy() // what its own Redis has
	do(alone.Heal)

	lost := chaos.Both(w.Kill(chaos.Redis, ap), restart)
	do(lost.Inject, lost.Heal)
	converged(20 * time.Second)
	goesBy()
	if _, objects := holders.End(); len(objects) > 0 {
		t.Error(objects)
	}
}

// TestOverridesOfABound: the units of a strict limit are raised while regions lend shares to each other, and lowered on one side of
// a cut while the other side still goes by the raise. No window of all regions holds more than the largest bound in force somewhere
// shortly before, and once the cut has arrived everywhere, no more than that.
func TestOverridesOfABound(t *testing.T) {
	const raise, lower = 150, 40
	w := chaos.Start(t, world())
	s := w.AskStrict()
	time.Sleep(time.Second)
	cut := w.Partition([]string{eu}, []string{us, ap})
	for _, step := range []struct {
		do   func() error
		then time.Duration
	}{
		{func() error { return s.Set(us, raise) }, 2*chaos.BoundWindow + time.Second},
		{cut.Inject, time.Second},
		{func() error { return s.Set(eu, lower) }, time.Second},
		{cut.Heal, time.Second},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(step.then)
	}
	if _, err := w.Await(10*time.Second, "all regions go by the lower units", func() error {
		for _, region := range chaos.Names() {
			if units, err := w.Limit(region, chaos.StrictTenant); err != nil || units != lower {
				return fmt.Errorf("%s goes by %d: %w", region, units, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	time.Sleep(chaos.KeptFor() + 2*chaos.BoundWindow + time.Second)
	fullest, borrowed, objects := s.End(raise, lower)
	t.Logf("the fullest window has %d of %d units; %d were borrowed", fullest.Units, fullest.Of, borrowed)
	for _, o := range objects {
		t.Error(o)
	}
	if borrowed == 0 {
		t.Error("nothing was lent, so nothing of this was tried")
	}
}

// newer compares versions as docs/configure.md orders them: by counter, time and region.
func newer(a, b string) bool {
	number := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64) // of none: 0
		return n
	}
	x, y := strings.SplitN(a, ".", 3), strings.SplitN(b+"..", ".", 3)
	return cmp.Or(cmp.Compare(number(x[0]), number(y[0])), cmp.Compare(number(x[1]), number(y[1])), cmp.Compare(x[2], y[2])) > 0
}
