package natsbus

import "net"

// GatewayAddr is where the server listens for gateways.
func (e *Embedded) GatewayAddr() net.Addr { return e.server.GatewayAddr() }

// Connections are the numbers of a server's gateway connections with a peer, by which a test sees that one stands.
func (e *Embedded) Connections(peer string) (ids []uint64) {
	z, err := e.server.(natsServer).Gatewayz(nil)
	if err != nil {
		return nil
	}
	if out := z.OutboundGateways[peer]; out != nil && out.Connection != nil {
		ids = append(ids, out.Connection.Cid)
	}
	for _, in := range z.InboundGateways[peer] {
		ids = append(ids, in.Connection.Cid)
	}
	return ids
}
