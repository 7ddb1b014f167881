package paths

import "github.com/regiond/regiond/quota"

// RouteName returns the name of the route of a request, quota.RouteOther for none.
func RouteName(f *quota.ForwardAuth, method, uri string) (string, error) {
	path, err := Target(uri)
	if err != nil {
		return "", err
	}
	r, err := Route(f, method, path)
	if r == nil {
		return quota.RouteOther, err
	}
	return r.Name, err
}

// Work returns how many bytes were looked at and rewritten to read a path.
func Work(path string) (scanned, copied int, err error) {
	first, err := scanSent(path)
	if err != nil || first == 0 {
		return 0, 0, err
	}
	var rs readings
	_, err = rs.read(path, first)
	return rs.scanned, rs.copied, err
}
