// Package clients holds what users of a Go client of the binary protocol do, against a real server.
package clients

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gomemcached"
	memcached "github.com/couchbase/gomemcached/client"
)

const doNotCreate = 0xffffffff

// connect opens a connection, logged in where servers want that.
func connect(t *testing.T, address string) *memcached.Client {
	t.Helper()
	client := open(t, address)
	if user := os.Getenv("LOGIN_USER"); user != "" {
		_, err := client.Auth(user, os.Getenv("LOGIN_SECRET"))
		must(t, err)
	}
	return client
}

// open opens a connection, over TLS where servers speak it.
func open(t *testing.T, address string) *memcached.Client {
	t.Helper()
	var client *memcached.Client
	var err error
	if trusted := believed(t); trusted == nil {
		client, err = memcached.Connect("tcp", address)
	} else {
		client, err = memcached.ConnectTLS("tcp", address, trusted)
	}
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expectStatus(t *testing.T, response *gomemcached.MCResponse, status gomemcached.Status) {
	t.Helper()
	if response == nil || response.Status != status {
		t.Fatalf("got %v, not status %v", response, status)
	}
}

func expectValue(t *testing.T, client *memcached.Client, key string, value []byte) {
	t.Helper()
	response, err := client.Get(0, key)
	must(t, err)
	if !bytes.Equal(response.Body, value) {
		t.Fatalf("%s holds %q, not %q", key, response.Body, value)
	}
}

func expectMissing(t *testing.T, client *memcached.Client, key string) {
	t.Helper()
	response, _ := client.Get(0, key)
	expectStatus(t, response, gomemcached.KEY_ENOENT)
}

func send(t *testing.T, client *memcached.Client, request *gomemcached.MCRequest) *gomemcached.MCResponse {
	t.Helper()
	response, err := client.Send(request)
	if response == nil {
		t.Fatal(err)
	}
	return response
}

func TestValuesAndFlagsComeBack(t *testing.T) {
	client := connect(t, startServer(t))
	_, err := client.Set(0, "key", 0xcafe, 0, []byte("value"))
	must(t, err)
	response, err := client.Get(0, "key")
	must(t, err)
	if string(response.Body) != "value" || !bytes.Equal(response.Extras, []byte{0, 0, 0xca, 0xfe}) {
		t.Fatalf("got %q with flags %x", response.Body, response.Extras)
	}
	expectMissing(t, client, "missing")
}

func TestStoringLooksAtWhatIsThere(t *testing.T) {
	client := connect(t, startServer(t))
	_, err := client.Add(0, "key", 0, 0, []byte("b"))
	must(t, err)
	response, _ := client.Add(0, "key", 0, 0, []byte("x"))
	expectStatus(t, response, gomemcached.KEY_EEXISTS)
	_, err = client.Append(0, "key", []byte("c"))
	must(t, err)
	expectStatus(t, send(t, client, &gomemcached.MCRequest{Opcode: gomemcached.PREPEND, Key: []byte("key"), Body: []byte("a")}), gomemcached.SUCCESS)
	expectValue(t, client, "key", []byte("abc"))
	response, _ = client.Append(0, "missing", []byte("c"))
	expectStatus(t, response, gomemcached.NOT_STORED)
	_, err = client.Del(0, "key")
	must(t, err)
	response, _ = client.Del(0, "key")
	expectStatus(t, response, gomemcached.KEY_ENOENT)
}

func TestCasNoticesAnotherWriter(t *testing.T) {
	client := connect(t, startServer(t))
	_, err := client.Set(0, "key", 0, 0, []byte("1"))
	must(t, err)
	read, err := client.Get(0, "key")
	must(t, err)
	_, err = client.SetCas(0, "key", 0, 0, read.Cas, []byte("2"))
	must(t, err)
	response, _ := client.SetCas(0, "key", 0, 0, read.Cas, []byte("3"))
	expectStatus(t, response, gomemcached.KEY_EEXISTS)
	expectValue(t, client, "key", []byte("2"))
}

func TestCasLoopsOfManyClientsLoseNothing(t *testing.T) {
	const workers, rounds = 4, 50
	address := startServer(t)
	client := connect(t, address)
	_, err := client.Set(0, "count", 0, 0, []byte("0"))
	must(t, err)
	clients := make([]*memcached.Client, workers)
	for number := range clients {
		clients[number] = connect(t, address)
	}
	var group sync.WaitGroup
	for _, worker := range clients {
		group.Add(1)
		go func(worker *memcached.Client) {
			defer group.Done()
			for round := 0; round < rounds; round++ {
				_, err := worker.CAS(0, "count", func(current []byte) ([]byte, memcached.CasOp) {
					number, _ := strconv.Atoi(string(current))
					return []byte(strconv.Itoa(number + 1)), memcached.CASStore
				}, 0)
				if err != nil {
					t.Error(err)
				}
			}
		}(worker)
	}
	group.Wait()
	expectValue(t, client, "count", []byte(strconv.Itoa(workers*rounds)))
}

func TestCounting(t *testing.T) {
	client := connect(t, startServer(t))
	if _, err := client.Incr(0, "count", 1, 0, doNotCreate); err == nil {
		t.Fatal("a missing counter was made")
	}
	for _, expected := range []uint64{10, 15} {
		number, err := client.Incr(0, "count", 5, 10, 0)
		must(t, err)
		if number != expected {
			t.Fatalf("got %d, not %d", number, expected)
		}
	}
	number, err := client.Decr(0, "count", 20, 0, 0)
	must(t, err)
	if number != 0 {
		t.Fatalf("got %d, not 0", number)
	}
}

func TestManyKeysThroughQuietGets(t *testing.T) {
	client := connect(t, startServer(t))
	var keys []string
	for number := 0; number < 500; number++ {
		key := fmt.Sprint("key", number)
		keys = append(keys, key)
		if number%2 == 0 {
			_, err := client.Set(0, key, 0, 0, []byte(key))
			must(t, err)
		}
	}
	found := map[string]*gomemcached.MCResponse{}
	must(t, client.GetBulk(0, keys, found, nil))
	if len(found) != len(keys)/2 {
		t.Fatalf("%d of %d keys were found", len(found), len(keys)/2)
	}
	for key, response := range found {
		if string(response.Body) != key {
			t.Fatalf("%s holds %q", key, response.Body)
		}
	}
}

func TestItemsExpireAndTouchKeepsThem(t *testing.T) {
	client := connect(t, startServer(t))
	var response *gomemcached.MCResponse
	var err error
	// A second that ends in between may end the item, too.
	for attempt := 0; attempt < 100; attempt++ {
		_, err = client.Set(0, "touched", 0, 1, []byte("x"))
		must(t, err)
		if response, err = client.GetAndTouch(0, "touched", 1000); err == nil {
			break
		}
	}
	must(t, err)
	// Stored later, it expires no sooner than the other one would have.
	_, err = client.Set(0, "short", 0, 1, []byte("x"))
	must(t, err)
	if string(response.Body) != "x" {
		t.Fatalf("got %q", response.Body)
	}
	for attempt := 0; attempt < 200; attempt++ {
		if _, err := client.Get(0, "short"); err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	expectMissing(t, client, "short")
	expectValue(t, client, "touched", []byte("x"))
}

func TestLargeValuesAndTheLimit(t *testing.T) {
	client := connect(t, startServer(t))
	large := bytes.Repeat([]byte("0123456789"), 100_000)
	_, err := client.Set(0, "large", 0, 0, large)
	must(t, err)
	expectValue(t, client, "large", large)
	response, _ := client.Set(0, "large", 0, 0, bytes.Repeat(large, 2))
	expectStatus(t, response, gomemcached.E2BIG)
	expectMissing(t, client, "large")
}

func TestStatistics(t *testing.T) {
	client := connect(t, startServer(t))
	stats, err := client.StatsMap("")
	must(t, err)
	for _, name := range []string{"pid", "version", "curr_items", "cmd_get"} {
		if _, there := stats[name]; !there {
			t.Errorf("no statistic %s", name)
		}
	}
}

func TestSaslPlain(t *testing.T) {
	if isMemcached() {
		t.Skip("memcached's users are the machine's own SASL database")
	}
	users := filepath.Join(t.TempDir(), "users")
	must(t, os.WriteFile(users, []byte("bob:builder\n"), 0o600))
	address := startServer(t, "-S", "-Y", users)

	stranger := open(t, address)
	if _, err := stranger.Set(0, "key", 0, 0, []byte("x")); err == nil {
		t.Fatal("a stranger was served")
	}
	impostor := open(t, address)
	if _, err := impostor.Auth("bob", "wrong"); err == nil {
		t.Fatal("a wrong password was taken")
	}
	client := open(t, address)
	_, err := client.Auth("bob", "builder")
	must(t, err)
	_, err = client.Set(0, "key", 0, 0, []byte("x"))
	must(t, err)
	expectValue(t, client, "key", []byte("x"))
}

func TestStrangersAndThoseWhoBelieveNobodyAreRefused(t *testing.T) {
	if believed(t) == nil {
		t.Skip("nothing protects the server")
	}
	address := startServer(t)
	stranger := open(t, address)
	if _, err := stranger.Get(0, "key"); err == nil {
		t.Fatal("a stranger was served")
	}
	impostor := open(t, address)
	if _, err := impostor.Auth(os.Getenv("LOGIN_USER"), "wrong"); err == nil {
		t.Fatal("a wrong secret was taken")
	}
	if client, err := memcached.ConnectTLS("tcp", address, &tls.Config{}); err == nil {
		client.Close()
		t.Fatal("a certificate of nobody's was believed")
	}
}
