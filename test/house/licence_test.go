package house_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spdx returns the SPDX expression of a licence text, "" when it is none that we
// know: then somebody has to read it before we ship it. A licence is recognised
// by a sentence of its own, whatever the line breaks and the name of the holder;
// several texts in one file are joined by AND.
func spdx(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	text = strings.ReplaceAll(text, "mozilla public license, version", "mozilla public license version") // as some write it
	bsd := "BSD-2-Clause"
	if strings.Contains(text, "neither the name of") {
		bsd = "BSD-3-Clause"
	}
	var ids []string
	for _, known := range []struct{ id, sentence string }{
		{"Apache-2.0", "apache license version 2.0, january 2004"},
		{bsd, "redistribution and use in source and binary forms, with or without modification"},
		{"ISC", "permission to use, copy, modify, and/or distribute this software"},
		{"MIT", "permission is hereby granted, free of charge, to any person"},
		{"MPL-2.0", "mozilla public license version 2.0"},
		{"CC0-1.0", "cc0 1.0 universal"},
	} {
		if strings.Contains(text, known.sentence) {
			ids = append(ids, known.id)
		}
	}
	return strings.Join(ids, " AND ")
}

func TestSPDX(t *testing.T) {
	const bsd2 = "Copyright X\nRedistribution and use in source and\nbinary forms, with or without\nmodification, are permitted"
	for text, want := range map[string]string{
		read(t, "LICENSE"):                  "Apache-2.0",
		bsd2:                                "BSD-2-Clause",
		bsd2 + "\n * Neither the name of X": "BSD-3-Clause",
		read(t, "LICENSE") + bsd2:           "Apache-2.0 AND BSD-2-Clause",
		"Mozilla Public License Version 2.0\n====":                                               "MPL-2.0",
		"Copyright X\nMozilla Public License,\nversion 2.0":                                      "MPL-2.0",
		"Creative Commons\nCC0 1.0\nUniversal":                                                   "CC0-1.0",
		"Permission is hereby granted, free\nof charge, to any person obtaining a copy":          "MIT",
		"Permission to use, copy, modify, and/or distribute this software for any\npurpose with": "ISC",
		"All rights reserved.": "",
	} {
		if got := spdx(text); got != want {
			t.Errorf("spdx(%.40q) = %q, want %q", text, got, want)
		}
	}
}

// licenceOf reads the licence files in a module's folder.
func licenceOf(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("read the folder of a module: %v", err)
	}
	var texts []string
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") || e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatalf("read a licence: %v", err)
		}
		texts = append(texts, string(data))
	}
	return spdx(strings.Join(texts, "\n"))
}

// hasNotice reports whether a module comes with a NOTICE file.
func hasNotice(t *testing.T, dir string) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "NOTICE*"))
	if err != nil {
		t.Fatalf("look for a notice: %v", err)
	}
	return len(found) > 0
}
