//go:build tools

// Names the conformance suite, so that go.mod and go.sum pin it and what it needs.
package main

import _ "github.com/summerwind/h2spec/cmd/h2spec"
