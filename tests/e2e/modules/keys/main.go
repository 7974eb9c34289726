// Writes a key pair for the tokens of service accounts: keys PRIVATE PUBLIC.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: keys PRIVATE PUBLIC"))
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	private, err := x509.MarshalECPrivateKey(key)
	fail(err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	fail(err)

	write(os.Args[1], "EC PRIVATE KEY", private)
	write(os.Args[2], "PUBLIC KEY", public)
}

func write(path, kind string, bytes []byte) {
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	fail(os.WriteFile(path, block, 0o600))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}
