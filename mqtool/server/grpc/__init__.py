"""gRPC server for RocketMQ 5.x clients, backed by the same broker that serves remoting clients.

Each call becomes the request that a remoting client would send (`core`), so all rules about messages are in
`mqtool.server.broker`. Decision: docs/decisions/0009-grpc.md. Docs page: docs/serve.md.
"""
