package loan

import "math"

// Want is what a region that has less than it could use, or that borrows, sends to all others: the request that
// grants answer. A later one replaces it.
type Want struct {
	From   string
	Epoch  uint32
	Time   int64 // the author's clock
	Cost   int64 // the largest of one request; 0: it is not known
	Need   int64 // what it would use of a window now, carefully
	Lack   int64 // what it would like to have beyond its ceiling
	Urgent int64 // the part of it that is denied meanwhile
	Rate   float64
	Share  int64 // its own share, ceiling, and what of that is unused
	Ceil   int64
	Slack  int64
	Burnt  bool   // its share is: what it has it borrows
	Held   []Loan // what it borrows
	// Period is the number of the period that all this is about, 0 without a calendar.
	Period int64
}

// Request returns the request that the want is to a lender, about the loan with this ID.
func (w *Want) Request(id ID) Request {
	return Request{From: w.From, Epoch: w.Epoch, Time: w.Time, ID: id, Period: w.Period}
}

// demand is what a region wants of the limit, in units.
type demand struct {
	need    int64 // what it would use of a window now, carefully
	target  int64 // the ceiling that it would like to have
	keep    int64 // what it goes on to use of a window
	reserve int64 // what it leaves unused for what is asked for within some trips
	spent   int64 // of all these but reserve, what is used already: of a period, from which it does not age
}

// idle reports whether nothing is asked for.
func (d *demand) idle() bool {
	return d.need == d.spent && d.target == 0 && d.keep <= d.spent && d.reserve == 0
}

// demand derives it from what was asked for. In a period it is what was used and a window more, or what is left of the period.
func (p *Planner) demand(b *Book, now, used int64, denied bool) (d demand) {
	window, trip := float64(p.Window), float64(p.Trip)
	if b.Period.Number != 0 {
		d.spent, window = used, min(window, float64(max(0, b.Period.End-now)))
	}
	d.need = d.spent + round(window*min(p.calm, p.now+0.5/max(float64(p.Window)/claimPart, trip/2)))
	if n := window * p.calm; n >= 0.5 || denied {
		upTo := func(n float64) int64 { return int64(math.Ceil(n + lackSigma*math.Sqrt(n))) }
		d.target = min(targetOver*p.Bound, max(d.spent+upTo(n), used+p.last.cost), used+max(upTo(p.calm*ahead*float64(p.Length)), p.last.cost))
	}
	d.keep = min(targetOver*p.Bound, max(d.target, d.spent+round(window*max(p.calm, p.slow))))
	d.reserve = round(keepTrips*p.fast*trip + min(1, p.fast*trip))
	// A region within its share keeps what it uses.
	if home := window * min(p.slow, p.calm); home+float64(d.spent) <= float64(p.floor(b, now)) {
		d.reserve = max(d.reserve, d.spent+int64(home-homeSigma*math.Sqrt(home))-used)
	}
	return d
}

// Op is one script call of a plan, checked by Book, and the message that follows from it.
type Op struct {
	Kind  OpKind
	To    string // the borrower, or the lender that units are returned to
	ID    ID
	Units int64 // to lend, return or leave unused; of a return also 0: what was returned is sent once more
	Until int64 // of a recall
	Want  *Want // which a grant answers
	Grant Grant // to be sent once more
}

// OpKind says what an Op does.
type OpKind uint8

// The kinds of operation.
const (
	OpLend OpKind = iota
	OpReturn
	OpRecall
	OpSend // no call, only the grant
)

// rates are of what is asked for, denied included, in units per µs: over a trip, a tenth of the window, half of it.
type rates struct {
	at                                int64
	fast, mid, brief, now, calm, slow float64
}

func (r *rates) fold(now, asked, window, trip int64) {
	dt, n, w, h := float64(max(0, now-r.at)), float64(asked), float64(window), float64(trip)
	r.at = now
	step := func(v *float64, tau float64) { *v = *v*math.Exp(-dt/tau) + n/tau }
	over := func(count, rate, least float64) float64 { // the time that count requests take
		if asked >= 3 && dt > 0 {
			rate = max(rate, n/dt)
		}
		return max(least, min(w/2, count/max(rate, 1e-12)))
	}
	brief := max(w/10, 50_000)
	step(&r.fast, over(8, r.fast, max(h/3, 20_000)))
	step(&r.mid, over(40, r.mid, max(w/20, 50_000)))
	step(&r.brief, brief)
	step(&r.now, max(w/claimPart, h/2))
	step(&r.slow, w/2)
	r.calm = min(r.mid, r.brief+0.5/brief)
}

// Ask is what one decision shows of a limit with a bound.
type Ask struct {
	Units int64 // that were asked for
	// Denied says that the bound did not admit them, Charged that they were charged.
	Denied, Charged bool
	// Remaining and Ceiling are what the bound leaves the region after the decision, Share is
	// its ceiling while nothing is lent.
	Remaining, Ceiling, Share int64
}

// Short reports whether the partition should be tended: less than half of the ceiling is
// left, or loans make it another one than the share.
func (a *Ask) Short() bool { return a.Denied || 2*a.Remaining < a.Ceiling || a.Ceiling > a.Share }
