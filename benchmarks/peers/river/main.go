// River: claims in batches, completions in batches, a goroutine for each job.
//
// The settings are those of its own benchmark: up to 2,000 jobs at a time, a fetch every 2 ms at
// most and every 20 ms at least; its defaults (100 ms, 1 s) are made for a small load. Limits from
// 500 to 10,000 and pools of 4 to 16 were within noise of it; no time limit for a job saves a tenth
// of the client's processor time. Finished jobs stay, as by default. A job is ended by id and
// state, so a worker that lost its job may still end the next attempt.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	maxWorkers    = 2_000
	fetchCooldown = 2 * time.Millisecond
	fetchPoll     = 20 * time.Millisecond
	connections   = 4
	chunk         = 5_000

	tick     = 100 * time.Millisecond
	rest     = time.Second
	patience = 30 * time.Second
)

var ctx = context.Background()

type order struct {
	Order int     `json:"order"`
	Email string  `json:"email"`
	N     int     `json:"n"`
	Sent  float64 `json:"sent,omitempty"`
}

func (order) Kind() string { return "noop" }

func newOrder(n int) order { return order{Order: 1234, Email: "someone@example.org", N: n} }

type noop struct {
	river.WorkerDefaults[order]
	handle func(order)
}

func (w *noop) Work(_ context.Context, job *river.Job[order]) error {
	w.handle(job.Args)
	return nil
}

type words map[string]any

func say(answer words) { check(json.NewEncoder(os.Stdout).Encode(answer)) }

// check ends the program on an error: half a measurement is none.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// watch is time that passed, and processor time of this process, since it was made.
type watch struct {
	wall time.Time
	cpu  time.Duration
}

func newWatch() watch              { return watch{time.Now(), cpuTime()} }
func (w watch) seconds() float64   { return time.Since(w.wall).Seconds() }
func (w watch) processor() float64 { return (cpuTime() - w.cpu).Seconds() }

func cpuTime() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// connect opens so many connections and holds them, so that no connecting is measured.
func connect(count int) *pgxpool.Pool {
	config := must(pgxpool.ParseConfig(os.Getenv("BENCH_DSN")))
	config.MaxConns, config.MinConns = int32(count), int32(count)
	pool := must(pgxpool.NewWithConfig(ctx, config))
	held := make([]*pgxpool.Conn, count)
	for i := range held {
		held[i] = must(pool.Acquire(ctx))
	}
	for _, conn := range held {
		conn.Release()
	}
	return pool
}

// newClient makes a client that works when it has a handler, and else only enqueues.
func newClient(pool *pgxpool.Pool, handle func(order)) *river.Client[pgx.Tx] {
	warnings := &slog.HandlerOptions{Level: slog.LevelWarn}
	config := &river.Config{
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPoll,
		JobTimeout:        -1, // none
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, warnings)),
	}
	if handle != nil {
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}}
		config.Workers = river.NewWorkers()
		river.AddWorker(config.Workers, &noop{handle: handle})
	}
	return must(river.NewClient(riverpgxv5.New(pool), config))
}

func about([]int) {
	answer := words{"name": "river", "keeps_finished": true, "fenced": false}
	answer["settings"] = fmt.Sprintf("pgx, %d jobs at a time, fetch cooldown %s, poll %s, no job timeout, pool %d",
		maxWorkers, fetchCooldown, fetchPoll, connections)
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/riverqueue/river" {
				answer["version"] = module.Version
			}
		}
	}
	say(answer)
}

func setup([]int) {
	pool := connect(2)
	defer pool.Close()
	migrator := must(rivermigrate.New(riverpgxv5.New(pool), nil))
	must(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))
}

func fill(numbers []int) {
	jobs := make([]river.InsertManyParams, numbers[0])
	for n := range jobs {
		jobs[n].Args = newOrder(n)
	}
	pool := connect(1)
	defer pool.Close()
	client, spent := newClient(pool, nil), newWatch()
	for first := 0; first < len(jobs); first += chunk {
		must(client.InsertManyFast(ctx, jobs[first:min(first+chunk, len(jobs))]))
	}
	say(words{"jobs": len(jobs), "seconds": spent.seconds(), "cpu_s": spent.processor()})
}

func enqueue(numbers []int) {
	jobs, clients := numbers[0], numbers[1]
	pool := connect(clients)
	defer pool.Close()
	client, spent := newClient(pool, nil), newWatch()
	var next atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := next.Add(1); n <= int64(jobs); n = next.Add(1) {
				must(client.Insert(ctx, newOrder(int(n)), nil))
			}
		})
	}
	all.Wait()
	say(words{"jobs": jobs, "seconds": spent.seconds(), "cpu_s": spent.processor()})
}

func drain([]int) {
	pool := connect(connections)
	defer pool.Close()
	var done, at atomic.Int64
	client := newClient(pool, func(order) {
		done.Add(1)
		at.Store(time.Now().UnixNano())
	})
	count := func(answer words) words {
		answer["done"], answer["at"] = done.Load(), nil
		if last := at.Load(); last > 0 {
			answer["at"] = float64(last) / 1e9
		}
		return answer
	}
	say(words{"ready": true})
	stdin := bufio.NewScanner(os.Stdin)
	if !stdin.Scan() || stdin.Text() != "go" {
		return
	}
	spent := newWatch()
	check(client.Start(ctx))
	stop := make(chan struct{})
	go func() {
		stdin.Scan() // `stop`, or nothing any more
		close(stop)
	}()
	tell(stop, &done, count)
	check(client.Stop(ctx))
	say(count(words{"stopped": true, "cpu_s": spent.processor()}))
}

func tell(stop <-chan struct{}, done *atomic.Int64, count func(words) words) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for told := int64(0); ; {
		select {
		case <-stop:
			return
		case <-ticks.C:
			if now := done.Load(); now != told {
				told = now
				say(count(words{}))
			}
		}
	}
}

func latency(numbers []int) {
	jobs, every := numbers[0], time.Duration(numbers[1])*time.Millisecond
	pool := connect(connections)
	defer pool.Close()
	if stale := countLeft(pool); stale > 0 {
		log.Fatalf("latency wants an empty queue, and %d jobs are left in this one", stale)
	}
	begun := time.Now()
	clock := func() float64 { return time.Since(begun).Seconds() * 1e3 }
	waits := make(chan float64, jobs+1)
	client := newClient(pool, func(o order) { waits <- clock() - o.Sent })
	send := func(n int) {
		job := newOrder(n)
		job.Sent = clock()
		must(client.Insert(ctx, job, nil))
	}
	hear := func() float64 {
		select {
		case wait := <-waits:
			return wait
		case <-time.After(patience):
			log.Fatal("a job was not heard of in time")
			return 0
		}
	}
	check(client.Start(ctx))
	send(0) // so that the worker is up, and statements are prepared
	hear()
	begin := time.Now().Add(rest)
	for n := range jobs {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * every)))
		send(n + 1)
	}
	ms := make([]float64, jobs)
	for n := range ms {
		ms[n] = hear()
	}
	check(client.Stop(ctx))
	say(words{"ms": ms})
}

func left([]int) {
	pool := connect(1)
	defer pool.Close()
	say(words{"left": countLeft(pool)})
}

func countLeft(pool *pgxpool.Pool) (count int) {
	unfinished := "select count(*) from river_job where finalized_at is null"
	check(pool.QueryRow(ctx, unfinished).Scan(&count))
	return count
}

func main() {
	whats := map[string]func([]int){
		"about": about, "setup": setup, "fill": fill, "enqueue": enqueue,
		"drain": drain, "latency": latency, "left": left,
	}
	if len(os.Args) < 2 || whats[os.Args[1]] == nil {
		log.Fatal("say about, setup, fill N, enqueue N CLIENTS, drain, latency N EVERY_MS or left")
	}
	var numbers []int
	for _, arg := range os.Args[2:] {
		numbers = append(numbers, must(strconv.Atoi(arg)))
	}
	whats[os.Args[1]](numbers)
}
