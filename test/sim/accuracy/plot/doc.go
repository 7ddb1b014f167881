// Package plot draws small charts as SVG: lines over an axis, and dots beside names.
// The files need nothing else, no script and no font, follow the reader's choice of
// light or dark, and have a background of their own for where that is not known.
// Series differ in dash and marker as well as in colour. The same input gives the
// same bytes.
package plot
