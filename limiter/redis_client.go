package limiter

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// clientOptions are those of a client that charges: go-redis's defaults send a
// script up to four times when replies are lost, and wait seconds for each.
func clientOptions(o RedisOptions) *redis.Options {
	return &redis.Options{
		Addr:                  o.Addrs[0],
		CredentialsProvider:   o.Credentials,
		TLSConfig:             o.TLS,
		Dialer:                o.Dial,
		ClientName:            o.ClientName,
		DisableIdentity:       true, // CLIENT SETINFO is unknown before Redis 7.2, even to an ACL
		Protocol:              3,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		DialTimeout:           redisDialTimeout,
		DialerRetries:         1,
		ReadTimeout:           max(redisIOTimeout, o.Budget),
		WriteTimeout:          max(redisIOTimeout, o.Budget),
		PoolTimeout:           redisPoolTimeout,
		PoolSize:              redisPoolSize,
		MinIdleConns:          redisMinIdle,
		PipelinePoolSize:      -1,
		ConnMaxIdleTime:       5 * time.Minute,
		ConnMaxLifetime:       time.Hour,
		ConnMaxLifetimeJitter: 10 * time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

func standaloneClient(o RedisOptions) *redis.Client { return redis.NewClient(clientOptions(o)) }

// sentinelClient follows the primary: each connection is made to the one that
// the sentinels name then, and those to another are closed when it changes.
func sentinelClient(o RedisOptions) *redis.Client {
	c := clientOptions(o)
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            o.Master,
		SentinelAddrs:         o.Addrs,
		SentinelUsername:      o.SentinelUsername,
		SentinelPassword:      o.SentinelPassword,
		CredentialsProvider:   c.CredentialsProvider,
		TLSConfig:             c.TLSConfig,
		Dialer:                c.Dialer,
		ClientName:            c.ClientName,
		DisableIdentity:       c.DisableIdentity,
		Protocol:              c.Protocol,
		MaxRetries:            c.MaxRetries,
		ContextTimeoutEnabled: true,
		DialTimeout:           c.DialTimeout,
		DialerRetries:         c.DialerRetries,
		ReadTimeout:           c.ReadTimeout,
		WriteTimeout:          c.WriteTimeout,
		PoolTimeout:           c.PoolTimeout,
		PoolSize:              c.PoolSize,
		MinIdleConns:          c.MinIdleConns,
		PipelinePoolSize:      c.PipelinePoolSize,
		ConnMaxIdleTime:       c.ConnMaxIdleTime,
		ConnMaxLifetime:       c.ConnMaxLifetime,
		ConnMaxLifetimeJitter: c.ConnMaxLifetimeJitter,
	})
}

// clusterClient has one client for each server, all with clientOptions. It sends
// what was redirected and nothing else; it does not ask for COMMAND.
func clusterClient(o RedisOptions) *redis.ClusterClient {
	c := clientOptions(o)
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    o.Addrs,
		CredentialsProvider:      c.CredentialsProvider,
		TLSConfig:                c.TLSConfig,
		Dialer:                   c.Dialer,
		ClientName:               c.ClientName,
		DisableIdentity:          c.DisableIdentity,
		Protocol:                 c.Protocol,
		MaxRetries:               c.MaxRetries,
		MaxRedirects:             maxRedirects,
		ContextTimeoutEnabled:    true,
		DialTimeout:              c.DialTimeout,
		DialerRetries:            c.DialerRetries,
		ReadTimeout:              c.ReadTimeout,
		WriteTimeout:             c.WriteTimeout,
		PoolTimeout:              c.PoolTimeout,
		PoolSize:                 c.PoolSize,
		MinIdleConns:             c.MinIdleConns,
		PipelinePoolSize:         c.PipelinePoolSize,
		ConnMaxIdleTime:          c.ConnMaxIdleTime,
		ConnMaxLifetime:          c.ConnMaxLifetime,
		ConnMaxLifetimeJitter:    c.ConnMaxLifetimeJitter,
		DisableRoutingPolicies:   true,
		MaintNotificationsConfig: c.MaintNotificationsConfig,
	})
}
