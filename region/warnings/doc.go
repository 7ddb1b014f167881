// Package warnings says what a topology costs its operator: what is allowed and probably not meant.
//
//	warnings.go     policies, regions and the bus between them
//	forwardauth.go  what gateways send, and who chose it
//	exposure.go     listeners and secrets that others reach
//	reload.go       limits and tenants that start anew
//
// It refuses nothing, which is region's. Those who load a file call it: internal/daemon and internal/cli.
package warnings
