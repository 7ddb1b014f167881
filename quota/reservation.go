package quota

import "time"

// A reservation holds units for work whose cost is known only at its end: a streamed completion, say, whose tokens are
// counted while they are produced. It begins as a Request with Reserve, and ends by a Claim that settles it, or by itself.

// Reservation is what a tenant holds until it settles or its time ends.
type Reservation struct {
	// ID is what a Claim names it by. It says nothing to who has it.
	ID        string
	Amount    int64
	ExpiresIn time.Duration
	// Clamped is whether it ends sooner than was asked for.
	Clamped bool
}

// Claim is what becomes of a reservation: it is settled, or gets more time.
type Claim struct {
	Reservation string
	// Actual is what was used, to settle: 0…MaxUnits, and 0 cancels.
	Actual int64
	// TTL is how long from now the reservation is to last, to extend; at least a millisecond, and at most as the policy says.
	TTL time.Duration
	// Of is the request that the reservation was made for, where that has Charges, whose costs are not used here; nil for
	// any other.
	Of *Request
	// May reports whether the caller may name the tenant whose reservation it is; nil is any.
	May func(tenant string) bool
}

// Validate returns what is wrong with a claim that settles, or with one that extends.
func (c *Claim) Validate(extends bool) []FieldError {
	var ms FieldErrors
	ms.When(!extends && (c.Actual < 0 || c.Actual > MaxUnits), "/actual", "must be a whole number between 0 and %d", MaxUnits)
	ms.When(extends && c.TTL < time.Millisecond, "/ttl_ms", "must be at least 1")
	return ms
}

// Settlement is what became of a reservation that is settled.
type Settlement struct {
	// Charged is what limits that count tokens were charged: all that was used, or 0 where Pending says that it is
	// charged later, or where nothing was to be charged.
	Charged int64
	// Overrun is how much of it is above what was held.
	Overrun int64
	// Released is whether the units were held until now: they are free again. A reservation may have ended by itself before, or
	// be held in another region.
	Released bool
	// Pending is whether the region's Redis is away: this process charges it when that is back.
	Pending bool
}
