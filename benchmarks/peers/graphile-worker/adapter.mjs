/**
 * graphile-worker: jobs fetched in batches into a local queue, completions in batches.
 *
 * The settings are those of its own performance test, a local queue of 500 and completions that wait
 * for nothing but are written together when they pile up, but for two: 12 jobs at a time, which were
 * faster than its 24 in six of seven pairs, and no refetch delay, which would make an idle worker
 * late. A local queue of 1,000 was no faster. Batches are off by default, and without them it is some
 * twenty times slower. Finished jobs are deleted, by id alone.
 */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const JOBS = 12;
const LOCAL_QUEUE = 500;
const CHUNK = 5_000;
const TICK_MS = 100;
const REST_MS = 1_000;
const PATIENCE_MS = 30_000;

const say = (words) => process.stdout.write(JSON.stringify(words) + "\n");
const order = (n) => ({ order: 1234, email: "someone@example.org", n });
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

/** Open so many connections and hold them, so that no connecting is measured. */
async function connect(max) {
  const pool = new pg.Pool({ connectionString: process.env.BENCH_DSN, max, idleTimeoutMillis: 0 });
  pool.on("error", (error) => console.error(error.message));
  pool.on("connect", (client) => client.on("error", (error) => console.error(error.message)));
  const held = await Promise.all(Array.from({ length: max }, () => pool.connect()));
  held.forEach((client) => client.release());
  return pool;
}

function watch() {
  const [wall, cpu] = [performance.now(), process.cpuUsage()];
  const spent = () => process.cpuUsage(cpu);
  return {
    seconds: () => (performance.now() - wall) / 1e3,
    cpu: () => (spent().user + spent().system) / 1e6,
  };
}

function startWorker(pgPool, handle) {
  const preset = {
    worker: {
      concurrentJobs: JOBS,
      localQueue: { size: LOCAL_QUEUE },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      logger,
    },
  };
  const taskList = { noop: async (payload) => handle(payload) };
  return run({ preset, pgPool, taskList, noHandleSignals: true });
}

async function countLeft(pool) {
  const { rows } = await pool.query("select count(*)::int as left from graphile_worker.jobs");
  return rows[0].left;
}

const whats = {
  async about() {
    const file = new URL("./node_modules/graphile-worker/package.json", import.meta.url);
    const settings =
      `Node ${process.versions.node}, ${JOBS} jobs at a time, local queue ${LOCAL_QUEUE}, ` +
      "completions batched without delay";
    const { name, version } = JSON.parse(readFileSync(file));
    say({ name, version, keeps_finished: false, fenced: false, settings });
  },

  async setup() {
    const pgPool = await connect(1);
    await (await makeWorkerUtils({ pgPool, logger })).migrate();
    await pgPool.end();
  },

  async fill(jobs) {
    const pgPool = await connect(1);
    const utils = await makeWorkerUtils({ pgPool, logger });
    const specs = Array.from({ length: jobs }, (_, n) => ({ identifier: "noop", payload: order(n) }));
    const spent = watch();
    for (let first = 0; first < jobs; first += CHUNK) {
      await utils.addJobs(specs.slice(first, first + CHUNK));
    }
    say({ jobs, seconds: spent.seconds(), cpu_s: spent.cpu() });
    await pgPool.end();
  },

  async enqueue(jobs, clients) {
    const pgPool = await connect(clients);
    const utils = await makeWorkerUtils({ pgPool, logger });
    let next = 0;
    const client = async () => {
      while (next < jobs) await utils.addJob("noop", order(next++));
    };
    const spent = watch();
    await Promise.all(Array.from({ length: clients }, client));
    say({ jobs, seconds: spent.seconds(), cpu_s: spent.cpu() });
    await pgPool.end();
  },

  async drain() {
    const input = createInterface({ input: process.stdin });
    const words = input[Symbol.asyncIterator]();
    const pgPool = await connect(JOBS + 1);
    let done = 0;
    let told = 0;
    let at = null;
    const count = () => {
      done += 1;
      at = Date.now() / 1e3;
    };
    const tell = () => {
      if (done === told) return;
      told = done;
      say({ done, at });
    };
    say({ ready: true });
    if ((await words.next()).value === "go") {
      const spent = watch();
      const worker = await startWorker(pgPool, count);
      const ticks = setInterval(tell, TICK_MS);
      await words.next(); // `stop`, or nothing any more
      clearInterval(ticks);
      await worker.stop();
      say({ stopped: true, done, at, cpu_s: spent.cpu() });
    }
    input.close();
    await pgPool.end();
  },

  async latency(jobs, everyMs) {
    const [workers, client] = [await connect(JOBS + 1), await connect(1)];
    const stale = await countLeft(client);
    if (stale) throw new Error(`latency wants an empty queue, and ${stale} jobs are left in this one`);
    const utils = await makeWorkerUtils({ pgPool: client, logger });
    const ms = [];
    let warm = false;
    const worker = await startWorker(workers, (payload) => {
      if (payload.n === 0) warm = true;
      else ms.push(performance.now() - payload.sent);
    });
    const heard = async (enough) => {
      const until = performance.now() + PATIENCE_MS;
      while (!enough()) {
        if (performance.now() > until) throw new Error("jobs were not heard of in time");
        await sleep(10);
      }
    };
    await utils.addJob("noop", order(0)); // so that the worker is up, and statements are prepared
    await heard(() => warm);
    const begin = performance.now() + REST_MS;
    for (let n = 0; n < jobs; n += 1) {
      await sleep(begin + n * everyMs - performance.now());
      await utils.addJob("noop", { ...order(n + 1), sent: performance.now() });
    }
    await heard(() => ms.length === jobs);
    await worker.stop();
    say({ ms });
    await Promise.all([workers.end(), client.end()]);
  },

  async left() {
    const pgPool = await connect(1);
    say({ left: await countLeft(pgPool) });
    await pgPool.end();
  },
};

const [what, ...numbers] = process.argv.slice(2);
await whats[what](...numbers.map(Number));
