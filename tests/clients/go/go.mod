module moneta/tests/clients/go

go 1.19

require github.com/couchbase/gomemcached v0.3.4

require (
	github.com/couchbase/goutils v0.1.2 // indirect
	github.com/google/flatbuffers v24.3.25+incompatible // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/crypto v0.32.0 // indirect
)
