package clients

// Starts a server for the tests: the binary that MONETA_BIN names.

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const startLimit = 30 * time.Second

// isMemcached tells whether the tests run against memcached, to check the tests themselves.
func isMemcached() bool {
	return filepath.Base(os.Getenv("MONETA_BIN")) == "memcached"
}

// believed is what the tests believe of servers that speak TLS; nil where they do not.
func believed(t *testing.T) *tls.Config {
	t.Helper()
	file := os.Getenv("TLS_CA")
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("no certificate in " + file)
	}
	return &tls.Config{RootCAs: roots}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// startServer returns the address of a server that ends with the test.
func startServer(t *testing.T, arguments ...string) string {
	t.Helper()
	program := os.Getenv("MONETA_BIN")
	if program == "" {
		t.Fatal("MONETA_BIN names no server")
	}
	port := freePort(t)
	where := []string{"-p", fmt.Sprint(port), "-l", "127.0.0.1"}
	if isMemcached() {
		where = append(where, "-u", "root", "-U", "0")
	} else {
		where = append([]string{"serve", "--admin", "off"}, where...)
	}
	command := exec.Command(program, append(where, arguments...)...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for end := time.Now().Add(startLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if connection, err := net.Dial("tcp", address); err == nil {
			connection.Close()
			return address
		}
	}
	t.Fatalf("no server on %s after %v", address, startLimit)
	return ""
}
