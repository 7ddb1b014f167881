package overrides_test

import "testing"

// BenchmarkOf is what each decision pays, of a tenant with an override and of one without.
func BenchmarkOf(b *testing.B) {
	p := newProcess(b, nil)
	if _, err := p.Edit(b.Context(), units("acme", "burst", 40, "sustained", 700)); err != nil {
		b.Fatal(err)
	}
	for _, tenant := range []string{"acme", "other"} {
		b.Run(tenant, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.Of(b.Context(), tenant); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
