// The program in the self-test's pods: it serves, asks and reads, so that the test needs no base image.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"time"
)

const authority = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

func main() {
	if len(os.Args) != 3 {
		fail("usage: probe serve ADDRESS | get URL | resolve NAME | read FILE")
	}
	argument := os.Args[2]
	switch os.Args[1] {
	case "serve":
		serve(argument)
	case "get":
		get(argument)
	case "resolve":
		resolve(argument)
	case "read":
		read(argument)
	default:
		fail("unknown command " + os.Args[1])
	}
}

// serve answers every request with the pod's name.
func serve(address string) {
	name, err := os.Hostname()
	check(err)
	fmt.Println("serving as", name)
	check(http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, name)
	})))
}

// get prints a page; https is verified against the cluster's authority.
func get(url string) {
	pool := x509.NewCertPool()
	if certificate, err := os.ReadFile(authority); err == nil {
		pool.AppendCertsFromPEM(certificate)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	client := http.Client{Timeout: 5 * time.Second, Transport: transport}
	response, err := client.Get(url)
	check(err)
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	check(err)
	if response.StatusCode != http.StatusOK {
		fail(response.Status)
	}
}

func resolve(name string) {
	found, err := net.LookupHost(name)
	check(err)
	sort.Strings(found)
	for _, address := range found {
		fmt.Println(address)
	}
}

func read(file string) {
	content, err := os.ReadFile(file)
	check(err)
	os.Stdout.Write(content)
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
