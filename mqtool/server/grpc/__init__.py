"""The gRPC door: RocketMQ 5.x clients, served by the same broker as those that speak remoting.

What a client asks for becomes the request that a remoting client would send (`core`), so each rule about messages is in
`mqtool.server.broker` alone. Decision: docs/decisions/0009-grpc.md. Docs page: docs/serve.md.
"""
