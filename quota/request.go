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
	// Limits are limits of a Domain, which Policy then names, that are decided in one step: the caller has
	// matched them. Each appears once. nil means those of the policy that apply.
	Limits []*Limit
	// Observe allows what Limits would deny, and charges what they would have admitted.
	Observe bool
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
	for i, d := range r.Dimensions {
		if err := ValidName(d.Name); err != nil {
			ms.add("/dimensions", "%v", err)
			continue
		}
		if i > 0 && r.Dimensions[i-1].Name == d.Name {
			ms.add("/dimensions/"+d.Name, "is duplicated")
		}
		if err := ValidID(d.Value); err != nil {
			ms.add("/dimensions/"+d.Name, "%v", err)
		}
	}
	if r.Cost < 1 || r.Cost > MaxUnits {
		ms.add("/cost", "must be a whole number between 1 and %d", MaxUnits)
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
