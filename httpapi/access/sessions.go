package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"sync"
	"time"
)

// What bounds sessions.
const (
	// SessionLife is how long a session lasts.
	SessionLife = 12 * time.Hour
	// MaxSessions bounds the sessions of a process; the oldest makes room for the next.
	MaxSessions = 64
)

// session is one login. Only the hash of its secret is kept.
type session struct {
	id, token [sha256.Size]byte
	ends      time.Time
}

// Sessions are those of a listener, oldest first. The zero value is ready. Safe for concurrent use.
type Sessions struct {
	mu  sync.Mutex
	all []session
}

// Begin opens a session for a token and returns its secret.
func (s *Sessions) Begin(token [sha256.Size]byte, now time.Time) (secret string) {
	secret = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	s.all = append(s.all, session{id: sha256.Sum256([]byte(secret)), token: token, ends: now.Add(SessionLife)})
	s.all = s.all[max(0, len(s.all)-MaxSessions):]
	return secret
}

// Token returns that of a session.
func (s *Sessions) Token(secret string, now time.Time) (token [sha256.Size]byte, ok bool) {
	id := sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	for i := range s.all {
		if subtle.ConstantTimeCompare(id[:], s.all[i].id[:]) == 1 {
			token, ok = s.all[i].token, true
		}
	}
	return token, ok
}

// End forgets a session.
func (s *Sessions) End(secret string) {
	id := sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(one session) bool { return subtle.ConstantTimeCompare(id[:], one.id[:]) == 1 })
}

func (s *Sessions) expire(now time.Time) {
	s.all = slices.DeleteFunc(s.all, func(one session) bool { return !now.Before(one.ends) })
}
