package sim

import "testing"

// TestCorpus: every line of the corpus is a plan, and none is there twice.
func TestCorpus(t *testing.T) {
	t.Parallel()
	plans, err := Corpus()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Plan]bool{}
	for _, p := range plans {
		if seen[p] {
			t.Errorf("%+v is there twice", p)
		}
		seen[p] = true
	}
	if len(seen) == 0 {
		t.Error("the corpus is empty")
	}
}
