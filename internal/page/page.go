// Package page is what an operator sees of regiond in a browser: the files of the page, and
// the stream of events that keeps it up to date.
//
//	Sample ──twice a second─▶ Stream ──▶ ring: 15 minutes in steps of 5 s
//	                            └──────▶ readers: one encoding for all, a bounded queue each
//
// It decides nothing about who may read it: httpapi mounts it on the admin listener.
package page

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed files
var embedded embed.FS

// policy lets a browser load the page's own files and nothing else, and run no script or
// style that stands in a document.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Files answers GET / and GET /page/{file}. They contain nothing secret and need no session.
func Files() http.Handler {
	files, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // the name is a valid path
	}
	server := http.FileServerFS(files)
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", server)
	mux.Handle("GET /page/", http.StripPrefix("/page", server))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		mux.ServeHTTP(w, r)
	})
}
