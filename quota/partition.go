package quota

import (
	"slices"
	"strconv"
)

// AppendPartition appends the canonical text of a partition below its tenant and
// policy. It is injective: two different partitions never have the same text,
// whatever their values contain, because each value is preceded by its length and
// a missing value is "-".
//
//	user,ip:2.42,9.192.0.2.1:            by user and ip
//	user:-:                              by user, the request has none
//	ip:9.192.0.2.1:route=5.login         only when route is login
func AppendPartition(dst []byte, l *Limit, dims Dimensions) []byte {
	for i, by := range l.By {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, by...)
	}
	dst = append(dst, ':')
	for i, by := range l.By {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v, ok := dims.Value(by); ok {
			dst = appendValue(dst, v)
		} else {
			dst = append(dst, '-')
		}
	}
	dst = append(dst, ':')
	for i, m := range l.When {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.Dimension...)
		dst = append(dst, '=')
		dst = appendValue(dst, m.Value)
	}
	return dst
}

func appendValue(dst []byte, v string) []byte {
	dst = strconv.AppendInt(dst, int64(len(v)), 10)
	dst = append(dst, '.')
	return append(dst, v...)
}

// SamePartition reports whether two limits of one policy count the same
// requests together: equal dimensions and equal condition. They then share one
// log, and each limit is only a question asked of it.
func SamePartition(a, b *Limit) bool {
	return slices.Equal(a.By, b.By) && slices.Equal(a.When, b.When)
}
