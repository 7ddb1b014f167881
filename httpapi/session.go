package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/regiond/regiond/httpapi/access"
)

// A browser cannot send a token with each request of a page. It sends it once, and gets a
// session: a cookie that no script can read and no other site can have sent. A session is
// worth what its token is worth at the moment, and nothing once that is gone.

const (
	sessionCookie = "regiond_session"
	maxLogin      = 4 << 10 // bytes of a login
)

// cookie is the name of the session's cookie. Browsers keep one list for all ports of a host, where pages
// of other processes have sessions of their own.
func (c *call) cookie() string {
	if _, port, err := net.SplitHostPort(c.Host); err == nil {
		return sessionCookie + "_" + port
	}
	return sessionCookie
}

// crossOrigin reports whether a page of another origin has a browser send a POST or DELETE. Another port of the
// same host is such an origin.
func (c *call) crossOrigin() bool {
	return http.NewCrossOriginProtection().Check(c.r) != nil
}

// ownPageHeader is a field that our page sends, and clients without a token. A page of another origin cannot: a browser
// would ask us first (a preflight of CORS), and we refuse.
const ownPageHeader = "X-Requested-With"

const noOwnPage = "the request could be of a web page of another origin, which a browser sends by itself: " +
	"add the header X-Requested-With with any value, as in curl -H 'X-Requested-With: curl', or a token"

// foreignPage reports whether a page of another origin could have had a browser send a request: nothing in it shows
// otherwise. Browsers add cookies and client certificates by themselves, and to a GET of an image or a frame over plain HTTP,
// where the name is not of loopback, neither Origin nor Sec-Fetch-Site.
func (c *call) foreignPage() bool {
	if site := c.Header.Values("Sec-Fetch-Site"); len(site) == 1 && (site[0] == "same-origin" || site[0] == "none") { // "none" was typed
		return false
	}
	_, none := c.shown().Secret(true)
	return none != "" && len(c.Header.Values(ownPageHeader)) == 0
}

// bySession returns the caller whose session a request of the admin listener carries, or why
// there is none; "" when it carries none.
func (c *call) bySession() (caller *access.Token, why string) {
	var hash [sha256.Size]byte
	var secret string
	ok := false
	cookies := c.r.CookiesNamed(c.cookie())
	for i := 0; i < len(cookies) && !ok; i++ { // another program of the host may have set one, too
		secret = cookies[i].Value
		hash, ok = c.sessions.Token(secret, c.Now())
	}
	switch {
	case len(cookies) == 0:
		return nil, ""
	case !ok:
		return nil, "the session has ended: log in again"
	case c.foreignPage():
		return nil, noOwnPage
	}
	caller, _ = c.settings.Access.AdminToken(hash)
	if caller == nil {
		c.sessions.End(secret) // also if the token comes back
		return nil, "the token of the session is not known any more: log in again"
	}
	return caller, ""
}

// login serves POST /session: {"token": "…"} becomes a cookie.
func (c *call) login() {
	if c.crossOrigin() {
		c.forbidden("a page of another origin may not log in")
		return
	}
	var body struct {
		Token string `json:"token"`
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxLogin))
	if err == nil {
		err = json.Unmarshal(raw, &body)
	}
	if err != nil || body.Token == "" {
		c.unauthorized(`send {"token": "…"} with an admin token`)
		return
	}
	caller, detail := c.settings.Access.AdminToken(sha256.Sum256([]byte(body.Token)))
	if detail != "" {
		c.unauthorized(detail)
		return
	}
	if caller.Scopes&access.Admin == 0 || caller.Tenants != nil {
		c.forbidden("the page needs a token with scope admin that is not held to tenants")
		return
	}
	c.setSession(c.sessions.Begin(caller.SHA256, c.start), int(access.SessionLife/time.Second))
}

// logout serves DELETE /session.
func (c *call) logout() {
	if c.crossOrigin() {
		c.forbidden("a page of another origin may not log out")
		return
	}
	for _, cookie := range c.r.CookiesNamed(c.cookie()) {
		c.sessions.End(cookie.Value)
	}
	c.setSession("", -1)
}

// setSession answers with the session's cookie.
func (c *call) setSession(secret string, seconds int) {
	cookie := &http.Cookie{
		Name: c.cookie(), Value: secret, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.r.TLS != nil,
	}
	c.Fields.Set("Set-Cookie", cookie.String())
	c.write(http.StatusNoContent, "", nil)
}
