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
