package quota

// Request is one question: may this tenant spend this cost now?
type Request struct {
	Tenant     string
	Policy     string // "" means the tenant's own
	Dimensions Dimensions
	Cost       int64 // 1…MaxUnits
	// IdempotencyKey makes a retried admission free for IdempotencyLife, "" for
	// none; at most MaxIdempotencyKey bytes of ValidID.
	IdempotencyKey string
	// Explain asks for the terms behind the decision.
	Explain bool
	// Charges are of a Domain, which Policy then names, and decided in one step: the caller has matched the limits.
	// nil means the limits of the policy that apply, with Dimensions and Cost, which otherwise are not used.
	Charges []Charge
	// Observe allows what the limits of Charges would deny, and charges what they would have admitted.
	Observe bool
}

// Charge is a cost under one limit. A limit may be in several of a request; those with equal values add up.
type Charge struct {
	Limit      *Limit
	Dimensions Dimensions
	Cost       int64 // 1…MaxUnits
}

// Domain is a policy of any number of limits, of which each request names its own: Request.Limits.
type Domain struct {
	Policy *Policy
	// Tenant is whose the requests are that belong to no other. It is listed.
	Tenant string
}

// Ask is what a Question is about. The zero value is AskCheck.
type Ask uint8

const (
	// AskCheck charges the cost if every limit has room for it, else nothing.
	AskCheck Ask = iota
	// AskPeek is AskCheck that charges nothing.
	AskPeek
	// AskReport charges the cost whatever is left.
	AskReport
)

// Question is a request, and what to do about it.
type Question struct {
	Request
	Ask Ask
}

// MaxIdempotencyKey is the largest number of bytes in an Idempotency-Key.
const MaxIdempotencyKey = 64

// Validate returns every error of the request that needs no configuration to
// see. Pointers are those of the JSON body.
func (r *Request) Validate() []FieldError {
	var ms fieldErrors
	if err := ValidID(r.Tenant); err != nil {
		ms.add("/tenant", "%v", err)
	}
	if r.Policy != "" {
		if err := ValidName(r.Policy); err != nil {
			ms.add("/policy", "%v", err)
		}
	}
	if r.Charges == nil {
		ms.charge(r.Dimensions, r.Cost)
	}
	for i := range r.Charges {
		ms.charge(r.Charges[i].Dimensions, r.Charges[i].Cost)
	}
	if k := r.IdempotencyKey; k != "" {
		if err := ValidID(k); err != nil {
			ms.add("", "Idempotency-Key %v", err)
		} else if len(k) > MaxIdempotencyKey {
			ms.add("", "Idempotency-Key must be at most %d characters, has %d", MaxIdempotencyKey, len(k))
		}
	}
	return ms
}

func (ms *fieldErrors) charge(dims Dimensions, cost int64) {
	for i, d := range dims {
		if err := ValidName(d.Name); err != nil {
			ms.add("/dimensions", "%v", err)
			continue
		}
		if i > 0 && dims[i-1].Name == d.Name {
			ms.add("/dimensions/"+d.Name, "is duplicated")
		}
		if err := ValidID(d.Value); err != nil {
			ms.add("/dimensions/"+d.Name, "%v", err)
		}
	}
	if cost < 1 || cost > MaxUnits {
		ms.add("/cost", "must be a whole number between 1 and %d", MaxUnits)
	}
}
