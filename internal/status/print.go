package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Print writes a report for a person. now is for how long ago.
func (v *Report) Print(w io.Writer, now time.Time) {
	store := v.Store.Kind
	if !v.Store.Available {
		store += ", away"
	}
	if v.Store.Epoch != 0 {
		store += fmt.Sprintf(", epoch %d", v.Store.Epoch)
	}
	if v.Store.Lost != nil {
		store += ", lost data at " + v.Store.Lost.Format(time.RFC3339)
	}
	fmt.Fprintf(w, "%s/%s  regiond %s, configuration %s, store %s\n", v.Region, v.Instance, v.Version, v.ConfigHash, store)
	fmt.Fprintf(w, "mode %s%s\n", v.Mode.Mode, whyMode(&v.Mode))
	if t := v.Topology; t != nil {
		fmt.Fprintf(w, "topology revision %d, %s\n", t.Revision, t.text())
		switch {
		case t.HeldMS > 0 && t.Agreed:
			fmt.Fprintf(w, "limits with max_overshoot keep to shares no larger than before for another %s\n", span(t.HeldMS))
		case t.HeldMS > 0:
			fmt.Fprintf(w, "limits with max_overshoot keep to them until all regions have had the same for %s\n", span(t.HeldMS))
		}
	}
	for i := range v.Bounds {
		b := &v.Bounds[i]
		left := ""
		if b.Until != nil {
			left = fmt.Sprintf(" (%s left)", span(b.LeftMS))
		}
		fmt.Fprintf(w, "%s: %s%s\n", b.Reason, b.Text, left)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "REGION\tSTATE\tCOUNTED\tHEARD\tACKED\tUNSENT\tUSAGE\tMISSING\tCLOCK\tGOSSIP")
	for i := range v.Regions {
		printRegion(t, &v.Regions[i])
	}
	_ = t.Flush() // as with every other line, a failed write has no other output to go to
	printReasons(w, v.Regions)
	printConnections(w, v, now)
}

func (t *Topology) text() string {
	text := "the same in every region"
	if !t.Agreed {
		text = "not the same in every region yet: the smallest shares apply"
	}
	if t.Refused != "" {
		text = "but not for this process: " + t.Refused
	}
	if len(t.Former) > 0 {
		text += "; removed: " + strings.Join(t.Former, ", ")
	}
	return text
}

func whyMode(m *Mode) string {
	if m.Reason == "" {
		return ""
	}
	why := ": " + m.Reason
	if len(m.About) > 0 {
		why += " (" + strings.Join(m.About, ", ") + ")"
	}
	return why
}

// printRegion writes a region and, below it, its processes.
func printRegion(w io.Writer, r *Region) {
	counted := "no"
	if r.InUse {
		counted = "yes"
	}
	offset := "-"
	if r.Offset != nil {
		offset = fmt.Sprintf("%+.1f±%.1fms", r.Offset.OffsetMS, r.Offset.UncertaintyMS)
		if r.Offset.Alarm {
			offset += " ALARM"
		}
	}
	heard, acked := "-", "-"
	if !r.Self {
		heard, acked = age(r.HeardMS), age(r.AckedMS)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t-\t-\t-\t%s\t-\n", r.Region, r.State, counted, heard, acked, offset)
	for i := range r.Processes {
		p := &r.Processes[i]
		state := p.State.String()
		if p.Newcomer {
			state += ", new"
		}
		usage := fmt.Sprintf("%d of %d", p.Complete, p.Newest)
		fmt.Fprintf(w, "  %s\t%s\t\t%s\t%s\t%s\t%s\t%s\trtt %.1fms\t%s\n",
			p.Instance, state, age(p.HeardMS), age(p.AckedMS), span(p.UnsentMS), usage, span(p.MissingMS), p.RTTMS, cmp.Or(p.Gossip, "-"))
	}
}

// printReasons writes why regions are treated as unreachable.
func printReasons(w io.Writer, regions []Region) {
	first := true
	for i := range regions {
		r := &regions[i]
		text := cmp.Or(r.Text, r.Reason.String())
		if text == "" {
			continue
		}
		if first {
			fmt.Fprintln(w)
		}
		first = false
		fmt.Fprintf(w, "%s: %s\n", r.Region, text)
	}
}

// printConnections writes the state of NATS, gossip and replication.
func printConnections(w io.Writer, v *Report, now time.Time) {
	fmt.Fprintln(w)
	if v.NATS == nil {
		fmt.Fprintln(w, "no NATS and no gossip: this region knows of no others")
		return
	}
	printNATS(w, v.NATS, now)
	for i, m := range v.Gossip {
		head := "gossip"
		if i > 0 {
			head = ""
		}
		self := ""
		if m.Self {
			self = ", this process"
		}
		fmt.Fprintf(w, "%-7s %s at %s, %s for %s%s\n", head, m.Name, m.Addr, m.State, ago(m.Since, now), self)
	}
	if len(v.Gossip) == 0 {
		fmt.Fprintln(w, "gossip  none")
	}
	if v.Totals != nil {
		fmt.Fprintf(w, "totals  of %s, oldest unsent change %s\n", count(v.Totals.Series, "partition", "partitions"), span(v.Totals.UnsentMS))
	}
	for _, limit := range slices.Sorted(maps.Keys(v.Worst)) {
		fmt.Fprintf(w, "worst   %s: %.0f %% of the limit in one window\n", limit, 100*v.Worst[limit])
	}
	if v.Drift != nil {
		fmt.Fprintf(w, "drift   configurations differ for %s: give all regions the same file\n", ago(v.Drift.Since, now))
		for _, hash := range slices.Sorted(maps.Keys(v.Drift.Hashes)) {
			fmt.Fprintf(w, "        %s  %s\n", hash, strings.Join(v.Drift.Hashes[hash], ", "))
		}
	}
}

func printNATS(w io.Writer, n *NATS, now time.Time) {
	switch {
	case n.Connected:
		fmt.Fprintf(w, "NATS    connected, %s, for %s\n", cmp.Or(n.URL, "somewhere"), ago(n.Since, now))
	case n.Since.IsZero():
		fmt.Fprintf(w, "NATS    not connected yet%s\n", because(n.LastError))
	default:
		fmt.Fprintf(w, "NATS    not connected for %s%s\n", ago(n.Since, now), because(n.LastError))
	}
	for _, g := range n.Gateways {
		var missing []string
		if !g.Outbound {
			missing = append(missing, "nothing goes to it")
		}
		if !g.Inbound {
			missing = append(missing, "nothing comes from it")
		}
		fmt.Fprintf(w, "        gateway %s: %s\n", g.Name, cmp.Or(strings.Join(missing, ", "), "both ways"))
	}
}

func because(lastError string) string {
	if lastError == "" {
		return ""
	}
	return ": " + lastError
}

// age is how long ago something was, given in milliseconds; −1 is never.
func age(ms int64) string {
	if ms < 0 {
		return "never"
	}
	return span(ms)
}

// span rounds a time to what a person reads at a glance.
func span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	default:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
}

func ago(since, now time.Time) string { return span(max(0, now.Sub(since)).Milliseconds()) }

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
