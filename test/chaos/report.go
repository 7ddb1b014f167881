//go:build linux

package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// Figures are what one scenario measured. Times are milliseconds.
type Figures struct {
	Test      string         `json:"test"`
	Fault     string         `json:"fault"`
	Profile   string         `json:"profile"`
	Rate      int            `json:"rate"`
	Run       int            `json:"run"` // above 1 when earlier ones said nothing
	Answers   int            `json:"answers"`
	Lost      int            `json:"lost"` // requests without an answer; those to a region that is the fault count too
	P50MS     float64        `json:"p50_ms"`
	MaxMS     float64        `json:"max_ms"`
	BareMS    float64        `json:"bare_max_ms"`
	OverLate  float64        `json:"over_late_ms"` // p99.9 of the worst second, above the bare handler; p99 under overload
	OverMax   float64        `json:"over_max_ms"`
	Judged    int            `json:"judged"`    // seconds that OverLate and OverMax are the worst of
	Starved   int            `json:"starved"`   // seconds in which the machine was too busy to judge
	Unjudged  bool           `json:"unjudged"`  // too many to judge promptness at all
	NoticeMS  float64        `json:"notice_ms"` // of the slowest region that had to notice; 0 when none had
	AgainMS   float64        `json:"again_ms"`  // after healing
	SettledMS float64        `json:"settled_ms"`
	Estimates int            `json:"estimates"` // compared with the truth
	Linear    int            `json:"linear"`    // calls that porcupine found an order for
	Over      int64          `json:"over"`      // units above the global limit in the worst window
	Explained int64          `json:"explained"`
	Labels    map[string]int `json:"labels"`
	Capacity  int            `json:"capacity"`           // checks a second that an overloaded Redis decided in a closed loop
	Overload  judge.Rates    `json:"overload"`           // of its region, a second
	Achieved  *Achieved      `json:"achieved,omitempty"` // by a hostile peer
	Failed    bool           `json:"failed"`

	// Fullest windows of limits with a bound, by class, and what regions had borrowed at most.
	Fullest  map[string]judge.Fullest `json:"fullest"`
	Borrowed int64                    `json:"borrowed"`
	Left     int                      `json:"left"`      // regions of which it was judged that they got what others left
	LentMS   float64                  `json:"lent_ms"`   // from a loss to the first unit of month that others lent
	ClosedMS float64                  `json:"closed_ms"` // the longest that a wrong clock closed strict
}

func (f *Figures) excess(e judge.Excess) {
	f.OverLate, f.OverMax, f.Judged, f.Starved = ms(e.Late), ms(e.Max), e.Judged, e.Starved
}

// count counts answers by mode and reason.
func (f *Figures) count(records []traffic.Record) {
	f.Labels = map[string]int{}
	var took []time.Duration
	for i := range records {
		r := &records[i]
		switch {
		case r.Bare:
			f.BareMS = max(f.BareMS, ms(r.Took()))
		case r.Err != "":
			f.Lost++
		default:
			f.Answers++
			took = append(took, r.Took())
			f.Labels[strings.TrimSpace(r.Answer.Mode+" "+r.Answer.Reason)]++
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		f.P50MS, f.MaxMS = ms(took[len(took)/2]), ms(took[len(took)-1])
	}
}

// ReportEnv names the directory that reports are written to; without it they go to the
// system's directory for temporary files, beside the run's own.
const ReportEnv = "CHAOSREPORT"

// finish writes the figures, and when an oracle has objected the whole report.
func (x *trial) finish() {
	x.t.Helper()
	x.figures.Failed = len(x.objects) > 0
	dir := os.Getenv(ReportEnv)
	if dir == "" && len(x.objects) > 0 {
		dir = filepath.Dir(os.TempDir()) // that of the run itself is removed: see Workplace
	}
	line, err := json.Marshal(x.figures)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Logf("%s", line)
	if dir != "" {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			x.t.Fatal(err)
		}
		file := filepath.Join(dir, strings.ReplaceAll(x.t.Name(), "/", "-"))
		if err := os.WriteFile(file+".json", append(line, '\n'), 0o600); err != nil {
			x.t.Fatal(err)
		}
		if len(x.objects) > 0 {
			if err := os.WriteFile(file+".txt", []byte(x.timeline()), 0o600); err != nil {
				x.t.Fatal(err)
			}
			x.t.Logf("the report is %s.txt", file)
		}
	}
	for _, o := range x.objects {
		x.t.Error(o)
	}
}

// moment is a line of the timeline.
type moment struct {
	at   time.Duration
	text string
}

// timeline is the report: objections, events and mode changes, and the end of each
// log.
func (x *trial) timeline() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s: %s, profile %s, %d requests a second, seed %d\n\n", x.t.Name(), x.fault.Name, x.Profile.Name, x.figures.Rate, x.World.Seed)
	for _, o := range x.objects {
		fmt.Fprintln(b, "-", o)
	}
	records := x.w.History.Records()
	all := changes(records)
	for _, e := range x.w.History.Events() {
		all = append(all, moment{e.At, "* " + e.Text})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	fmt.Fprintln(b)
	for _, m := range all {
		fmt.Fprintf(b, "%9.3fs  %s\n", m.at.Seconds(), m.text)
	}
	for _, r := range x.w.Regions {
		for _, p := range r.processes() {
			fmt.Fprintf(b, "\n=== %s said last\n%s\n", p.name, p.tail(8000))
		}
	}
	return b.String()
}

// changes are when the mode or reason of a region's answers changed.
func changes(records []traffic.Record) (all []moment) {
	sorted := slices.SortedFunc(slices.Values(records), func(a, b traffic.Record) int { return cmp.Compare(a.Return, b.Return) })
	said := map[string]string{}
	for i := range sorted {
		r := &sorted[i]
		if r.Bare || r.Answer.Basis == "shed" { // of which there are many, and of any mode
			continue
		}
		label := strings.TrimSpace(r.Answer.Mode + " " + r.Answer.Reason)
		if r.Err != "" {
			label = "no answer: " + r.Err
		}
		if said[r.Region] != label {
			said[r.Region] = label
			all = append(all, moment{r.Return, fmt.Sprintf("%s: %s (after %v, sent at %v)", r.Region, label, r.Took().Round(time.Microsecond), r.Call)})
		}
	}
	return all
}
