// Package zones has the time zones of the IANA database, as this program was built with them: two machines agree on when a
// month begins whatever their systems have installed. zoneinfo.zip is a copy of lib/time/zoneinfo.zip of a Go release, whose
// files are in the public domain.
package zones

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"
)

//go:embed zoneinfo.zip
var data []byte

// Load returns the zone of a name such as Europe/Berlin. The error says which name was probably meant.
func Load(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	all, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("read the embedded zone data: %w", err)
	}
	meant := ""
	for _, f := range all.File {
		switch {
		case f.Name == name && !f.FileInfo().IsDir():
			return load(f)
		case strings.EqualFold(f.Name, strings.ReplaceAll(name, " ", "_")), meant == "" && name != "" && strings.EqualFold(f.Name[strings.LastIndexByte(f.Name, '/')+1:], name):
			meant = fmt.Sprintf("; did you mean %q?", f.Name)
		}
	}
	return nil, fmt.Errorf("is not the name of a time zone such as Europe/Berlin or UTC%s", meant)
}

func load(f *zip.File) (*time.Location, error) {
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("open zone %s: %w", f.Name, err)
	}
	defer r.Close()
	zone, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read zone %s: %w", f.Name, err)
	}
	return time.LoadLocationFromTZData(f.Name, zone)
}
