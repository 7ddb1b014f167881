// Command accuracy measures how exact a global limit is, on the simulator.
//
//	go run ./test/sim/cmd/accuracy            prints the figures that show most, in seconds
//	go run ./test/sim/cmd/accuracy -docs docs measures the whole grid, in minutes, and writes
//	                                          the tables of docs/accuracy.md and their figures
//	go run ./test/sim/cmd/accuracy -docs docs -only max_overshoot   measures the cells whose description contains this
//	go run ./test/sim/cmd/accuracy -few units   prints how much of strict limits with few or large units is used
//	go run ./test/sim/cmd/accuracy -docs docs -render   writes the tables from the stored figures
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"github.com/regiond/regiond/test/loansim"
	"github.com/regiond/regiond/test/sim/accuracy"
)

func main() {
	docs := flag.String("docs", "", "folder of documents to write to; none: print only")
	render := flag.Bool("render", false, "measure nothing, write the tables from the stored figures")
	only := flag.String("only", "", "with -docs: measure the cells whose description contains this, and keep the others")
	few := flag.String("few", "", "measure strict limits of few or large units whose description contains this")
	worlds := flag.Int("worlds", 20, "with -few: in how many worlds")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "cells to measure at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *few != "" {
		err = loansim.ReportFew(os.Stdout, *few, *worlds)
	} else {
		err = run(ctx, *docs, *only, *render, *workers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, docs, only string, render bool, workers int) error {
	switch {
	case docs == "" && render:
		return fmt.Errorf("-render needs -docs: which folder's figures?")
	case docs == "":
		return accuracy.Report(ctx, os.Stdout, workers)
	case render:
		return accuracy.WritePage(docs)
	}
	return accuracy.Document(ctx, docs, only, workers)
}
