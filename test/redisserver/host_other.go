//go:build !linux

package redisserver

import "syscall"

// processAttr is empty where a child cannot be bound to its parent's life.
func processAttr() *syscall.SysProcAttr { return nil }

// AwaitStopped trusts the signal where there is no way to ask.
func AwaitStopped(int) error { return nil }
