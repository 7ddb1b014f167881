package accuracy

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"
)

// moment is how much of the limit was used in the window that ends then.
type moment struct {
	at    time.Duration
	units [3]int64 // two buckets, eleven, the all-knowing limiter
}

const (
	// timelineStep is how far apart the moments are.
	timelineStep = 500 * time.Millisecond
	// timelineOf and timelineRun are what the timeline shows.
	timelineOf  = "moving hot region 10×"
	timelineRun = 1
)

var timelineHeader = []string{"at_ms", "two_buckets", "eleven_buckets", "all_knowing"}

// timeline follows one workload at the centre through a run with two buckets and
// one with eleven, which are asked the same.
func timeline(seed uint64, build Builder) ([]moment, error) {
	var moments []moment
	for column, buckets := range allBuckets() {
		c := centre()
		c.Workload, c.Buckets = workload(timelineOf), buckets
		next := time.Duration(0)
		_, err := drive(c, timelineRun, seed, build, func(us int64, j *Judge) {
			for ; next.Microseconds() < us; next += timelineStep {
				if column == 0 {
					moments = append(moments, moment{at: next})
				}
				m := &moments[int(next/timelineStep)]
				m.units[column] = j.Used(next.Microseconds())
				m.units[2] = j.ideal.log.count(next.Microseconds())
			}
		})
		if err != nil {
			return nil, fmt.Errorf("%v: %w", c, err)
		}
	}
	return moments, nil
}

func writeTimeline(out io.Writer, moments []moment) error {
	rows := [][]string{timelineHeader}
	for _, m := range moments {
		row := []string{strconv.FormatInt(m.at.Milliseconds(), 10)}
		for _, units := range m.units {
			row = append(row, strconv.FormatInt(units, 10))
		}
		rows = append(rows, row)
	}
	if err := csv.NewWriter(out).WriteAll(rows); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

func readTimeline(in io.Reader) ([]moment, error) {
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read timeline: %w", err)
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("read timeline: there are no moments in it; make it anew with make accuracy")
	}
	var moments []moment
	for i, row := range rows[1:] {
		var numbers []int64
		for _, text := range row {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read timeline: line %d: %q is not a number", i+2, text)
			}
			numbers = append(numbers, n)
		}
		moments = append(moments, moment{at: time.Duration(numbers[0]) * time.Millisecond, units: [3]int64(numbers[1:])})
	}
	return moments, nil
}
