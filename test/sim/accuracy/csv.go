package accuracy

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// header names the columns of grid.csv. What counts is in units of a limit of Limit.
var header = []string{
	"workload", "max_overshoot", "event", "regions", "rtt_ms", "window_s",
	"asked", "admitted", "all_knowing", "needless", "worst", "p99", "mean", "aligned",
	"reference_admitted", "reference_needless", "reference_worst",
}

// WriteCSV writes results, one line each, with a header.
func WriteCSV(out io.Writer, results []Result) error {
	w := csv.NewWriter(out)
	rows := [][]string{header}
	for _, r := range results {
		rows = append(rows, record(r))
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

func record(r Result) []string {
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{
		r.Workload.Name, r.MaxOvershoot.String(), string(r.Event),
		strconv.Itoa(r.Regions), whole(r.RTT.Milliseconds()), whole(int64(r.Window / time.Second)),
		whole(r.Asked), whole(r.Admitted), whole(r.AllKnowing), whole(r.Needless), whole(r.Worst), whole(r.P99),
		strconv.FormatFloat(r.Mean, 'f', meanDigits, 64), whole(r.Aligned),
		whole(r.Reference.Admitted), whole(r.Reference.Needless), whole(r.Reference.Worst),
	}
}

// meanDigits is how exactly Mean is written: to a thousandth of a unit.
const meanDigits = 3

// ReadCSV reads what WriteCSV wrote. Errors name the line.
func ReadCSV(in io.Reader) ([]Result, error) {
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], header) {
		return nil, fmt.Errorf("read results: the first line is not the header %q; make the file anew with make accuracy", header)
	}
	results := make([]Result, 0, len(rows)-1)
	for i, row := range rows[1:] {
		r, err := parse(row)
		if err != nil {
			return nil, fmt.Errorf("read results: line %d: %w", i+2, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func parse(row []string) (Result, error) {
	var r Result
	at := slices.IndexFunc(Workloads(), func(w Workload) bool { return w.Name == row[0] })
	if at < 0 {
		return r, fmt.Errorf("no workload is called %q", row[0])
	}
	r.Workload = Workloads()[at]
	if err := r.MaxOvershoot.UnmarshalText([]byte(row[1])); err != nil {
		return r, fmt.Errorf("%s: %q %w", header[1], row[1], err)
	}
	r.Event = Event(row[2])
	var regions, rttMS, windowS int64
	into := []*int64{
		&regions, &rttMS, &windowS,
		&r.Asked, &r.Admitted, &r.AllKnowing, &r.Needless, &r.Worst, &r.P99, nil, &r.Aligned,
		&r.Reference.Admitted, &r.Reference.Needless, &r.Reference.Worst,
	}
	for i, to := range into {
		text := row[i+3]
		var err error
		if to == nil {
			r.Mean, err = strconv.ParseFloat(text, 64)
		} else {
			*to, err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return r, fmt.Errorf("%s: %q is not a number", header[i+3], text)
		}
	}
	r.Regions, r.RTT, r.Window = int(regions), time.Duration(rttMS)*time.Millisecond, time.Duration(windowS)*time.Second
	return r, nil
}
