-- enqueue_job: one job with a key or a group, in the transaction of the connection, through the public function.
--
--   $1  kind      text
--   $2  payload   jsonb
--   $3  key       text
--   $4  run_in    interval
--   $5  queue     text
--   $6  priority  integer
--   $7  key_ttl   interval
--   $8  group_key text
--   $9  group_running integer
--
-- Reads:   index job_keys_pkey
-- Returns: job_id bigint, duplicate boolean
select job_id, duplicate
from reliq.enqueue($1, $2, $3, $4, $5, $6, $7, null, $8, $9);
