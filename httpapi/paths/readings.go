package paths

import (
	"bytes"
	"errors"
	"math/bits"
	"slices"
)

// The work for one path is bounded: one of an honest client has one to ten readings, and
// rarely twenty.
const (
	maxReadings = 64
	// maxSpecial bounds the bytes of a path, escaped or not, that servers read differently.
	maxSpecial = 256
	maxScanned = 256 << 10 // bytes looked at, for all readings
	maxCopied  = 32 << 10  // bytes that steps rewrite, for all readings
)

var errTooManyWays = errors.New("can be read in too many ways")

// steps are what a server may do to a path, as a set.
type steps uint16

// The steps that change a path. The last ones only cut something off.
const (
	decode      steps = 1 << iota // escapes, except those of "/"
	decodeSlash                   // before or after the others, or never
	cutParameters
	resolveDots
	mergeSlashes
	cutHost   // //host/login is /login where the target is resolved as a reference
	cutQuery  // where a gateway decodes the path and does not encode it again: then /login%3Fx is /login
	trimSpace // at the end
	trimDots  // and spaces, as Windows opens files, and Caddy compares

	broken // is no step: an escape that is none
)

// reading is what a path becomes on its way to the code that serves it.
type reading struct {
	from, to int // in readings.text
	steps    steps
	decoded  bool // once at least, as every server does
}

// readings are all that a path can become.
type readings struct {
	text            []byte
	all             []reading
	scanned, copied int // bytes
}

// read computes the path as it was sent and all that the steps make of it, applied in any
// order and any number of times: it has the result of a gateway that decodes before it
// resolves dots and of a server behind it that decodes once more. alike is set when no
// step but decoding changes anything. first is what scan has found.
func (rs *readings) read(path string, first steps) (alike bool, err error) {
	rs.text = append(rs.text, path...)
	rs.all = append(rs.all, reading{0, len(path), first, first&decode == 0})
	var taken steps
	for i := 0; i < len(rs.all); i++ {
		if len(rs.all) > maxReadings {
			return false, errTooManyWays
		}
		taken |= rs.all[i].steps
		for todo := rs.all[i].steps; todo != 0; todo &= todo - 1 {
			if err := rs.take(rs.all[i], steps(1)<<bits.TrailingZeros16(uint16(todo))); err != nil {
				return false, err
			}
		}
	}
	return taken&^decode == 0, nil
}

// take adds what a step makes of a reading, unless it is there already.
func (rs *readings) take(r reading, step steps) error {
	p := rs.text[r.from:r.to]
	to := reading{from: r.from, to: r.to, decoded: r.decoded || step == decode}
	copies := step < cutHost
	switch step {
	case cutHost:
		host := len(p) - len(bytes.TrimLeft(p, "/"))
		if slash := bytes.IndexByte(p[host:], '/'); slash >= 0 {
			to.from += host + slash
		} else {
			to.to = r.from + 1
		}
	case cutQuery:
		to.to = r.from + bytes.IndexAny(p, "?#")
	case trimSpace:
		to.to = r.from + len(bytes.TrimRight(p, " "))
	case trimDots:
		to.to = r.from + len(bytes.TrimRight(p, ". "))
	default:
		if rs.copied += len(p); rs.copied > maxCopied {
			return errTooManyWays
		}
		to.from = len(rs.text)
		rs.text = slices.Grow(rs.text, len(p))
		to.to = to.from + rewrite(step, rs.text[to.from:to.from+len(p)], p)
		rs.text = rs.text[:to.to]
	}
	seen, err := rs.seen(to)
	if err != nil {
		return err
	}
	if seen {
		if copies {
			rs.text = rs.text[:to.from]
		}
		return nil
	}
	made := rs.text[to.from:to.to]
	if to.steps, err = scan(made); err != nil {
		return err
	}
	to.steps &^= broken
	to.decoded = to.decoded || to.steps&decode == 0
	rs.all = append(rs.all, to)
	return nil
}

// seen reports whether a reading is there already.
func (rs *readings) seen(r reading) (bool, error) {
	made := rs.text[r.from:r.to]
	rs.scanned += len(made)
	for _, other := range rs.all {
		if other.to-other.from != len(made) {
			continue
		}
		if rs.scanned += len(made); rs.scanned > maxScanned {
			break
		}
		// Where nothing is left to decode, it makes no difference whether a server did.
		if bytes.Equal(rs.text[other.from:other.to], made) && (r.decoded == other.decoded || other.steps&decode == 0) {
			return true, nil
		}
	}
	if rs.scanned > maxScanned {
		return false, errTooManyWays
	}
	return false, nil
}

// scan returns the steps that change a path.
//
// What no honest client sends is an error: a control character and a backslash, however
// often they are encoded, and more than maxSpecial bytes that servers read differently.
// Escapes of other bytes, as those of UTF-8, do not count.
func scan[T string | []byte](p T) (found steps, err error) {
	special := 0
	const low uint64 = 1<<'%' | 1<<';' | 1<<'/' | 1<<'?' | 1<<'#' | (1<<' ' - 1) // below 64, what no other step or check minds
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c < 64 && low>>c&1 == 0 || c >= 64 && c != '\\' && c != 0x7f {
			continue
		}
		switch c {
		case '%':
			if i+2 >= len(p) {
				found |= broken
				continue
			}
			v, ok := unescape(p[i+1], p[i+2])
			if !ok {
				found |= broken
				continue
			}
			i += 2
			switch v {
			case '/':
				found |= decodeSlash
				special++
			case ';', '?', '#', '.':
				special++
			case '%':
				if !utf8Escape(p, i+1) { // not UTF-8 that was encoded twice
					special++
				}
			}
			if v != '/' {
				found |= decode
			}
			c = v // it will be a control character or a backslash
		case ';':
			found |= cutParameters
			special++
		case '?', '#':
			found |= cutQuery
			special++
		case '/':
			if i+1 == len(p) || p[i+1] != '/' && p[i+1] != '.' {
				continue
			}
			special++
			switch {
			case p[i+1] == '.' && dotSegment(p, i+1) > 0:
				found |= resolveDots
			case p[i+1] == '/' && i == 0:
				found |= mergeSlashes | cutHost
			case p[i+1] == '/':
				found |= mergeSlashes
			}
		}
		if special > maxSpecial {
			return 0, errTooManyWays
		}
		if c < ' ' || c == 0x7f {
			return 0, errors.New("must not contain control characters, encoded or not")
		}
		if c == '\\' {
			return 0, errors.New("must not contain a backslash, encoded or not")
		}
	}
	if len(p) > 0 {
		switch p[len(p)-1] {
		case ' ':
			found |= trimSpace | trimDots
		case '.':
			found |= trimDots
		}
	}
	return found, nil
}

// dotSegment returns the length of the segment at i, which begins with ".", if it is "." or
// "..", else 0.
func dotSegment[T string | []byte](p T, i int) int {
	end := i + 1
	if end < len(p) && p[end] == '.' {
		end++
	}
	if end < len(p) && p[end] != '/' {
		return 0
	}
	return end - i
}

// digits has 1 more than the value of each hexadecimal digit, in either case, and 0 for other bytes.
var digits = [256]byte{
	'0': 1, '1': 2, '2': 3, '3': 4, '4': 5, '5': 6, '6': 7, '7': 8, '8': 9, '9': 10,
	'a': 11, 'b': 12, 'c': 13, 'd': 14, 'e': 15, 'f': 16, 'A': 11, 'B': 12, 'C': 13, 'D': 14, 'E': 15, 'F': 16,
}

// unescape returns the byte that an escape with two digits stands for.
func unescape(high, low byte) (c byte, ok bool) {
	h, l := digits[high], digits[low]
	return (h-1)<<4 | (l-1)&0xf, h != 0 && l != 0
}

// utf8Escape is whether the digits at i are of an escape of a byte that is not of ASCII.
func utf8Escape[T string | []byte](p T, i int) bool {
	return i+1 < len(p) && digits[p[i]] > 8 && digits[p[i+1]] != 0
}

// rewrite writes to out, which is as long as the path, what a step makes of the path, and
// returns its length.
func rewrite(step steps, out, p []byte) (n int) {
	switch step {
	case decode, decodeSlash:
		for i := 0; i < len(p); i++ {
			c := p[i]
			if c == '%' && i+2 < len(p) {
				if v, ok := unescape(p[i+1], p[i+2]); ok && (v == '/') == (step == decodeSlash) {
					c = v
					i += 2
				}
			}
			out[n] = c
			n++
		}
	case cutParameters: // what follows ";" in each segment
		cut := false
		for _, c := range p {
			if cut = c != '/' && (cut || c == ';'); !cut {
				out[n] = c
				n++
			}
		}
	case mergeSlashes:
		for i, c := range p {
			if c != '/' || i == 0 || p[i-1] != '/' {
				out[n] = c
				n++
			}
		}
	case resolveDots:
		return resolve(out, p)
	}
	return n
}

// resolve removes "." segments, and ".." segments with the one before, which may be empty:
// servers that merge slashes first do not meet that case.
func resolve(out, p []byte) (n int) {
	for i := 0; i < len(p); i++ {
		if p[i] == '/' && i+1 < len(p) && p[i+1] == '.' {
			if dots := dotSegment(p, i+1); dots > 0 {
				if dots == 2 {
					n = max(0, bytes.LastIndexByte(out[:n], '/'))
				}
				if i += dots; i+1 == len(p) {
					out[n] = '/'
					n++
				}
				continue
			}
		}
		out[n] = p[i]
		n++
	}
	if n == 0 {
		out[0] = '/'
		n = 1
	}
	return n
}
