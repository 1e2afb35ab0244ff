-- views.sql: the views of schema.sql once more, decoding with the extension's functions. Same names, columns and values.
-- Where a statement names the first database, views.c puts the schema that holds the trace.

DROP VIEW IF EXISTS temp.attention;
CREATE TEMP VIEW attention AS
SELECT
  h.run AS run, h.step AS step, s.position AS position, t.text AS token_text, h.layer AS layer, h.head AS head,
  f.i AS row,
  f.token_text AS row_token_text,
  f.value AS score,
  f.second AS weight
FROM main.head_step AS h
LEFT JOIN main.step AS s ON s.run = h.run AND s.step = h.step
LEFT JOIN main.token AS t ON t.token = s.token
CROSS JOIN kvstep_attended(h.scores, h.weights, 'main', h.run, h.layer, h.step) AS f;

DROP VIEW IF EXISTS temp.cache;
CREATE TEMP VIEW cache AS
SELECT
  c.run AS run, c.layer AS layer, n.n AS head, c.row AS row, c.step AS step, t.text AS token_text, d.n AS dim,
  f32(c.k, n.n * r.head_dim + d.n) AS k,
  f32(c.v, n.n * r.head_dim + d.n) AS v
FROM main.kv_row AS c
CROSS JOIN main.run AS r ON r.run = c.run
LEFT JOIN main.step AS s ON s.run = c.run AND s.step = c.step
LEFT JOIN main.token AS t ON t.token = s.token
CROSS JOIN main.number AS n ON n.n < r.n_head
CROSS JOIN main.number AS d ON d.n < r.head_dim;

DROP VIEW IF EXISTS temp.query_vector;
CREATE TEMP VIEW query_vector AS
SELECT h.run AS run, h.step AS step, h.layer AS layer, h.head AS head, f.i AS dim, f.value AS q, f.second AS out
FROM main.head_step AS h
CROSS JOIN floats(h.q, h.out) AS f;

DROP VIEW IF EXISTS temp.logit;
CREATE TEMP VIEW logit AS
SELECT s.run AS run, s.step AS step, n.token AS token, n.text AS token_text, f.value AS logit
FROM main.step_vector AS s
CROSS JOIN floats(s.logits) AS f
CROSS JOIN main.token AS n ON n.token = f.i;

DROP VIEW IF EXISTS temp.rule;
CREATE TEMP VIEW rule AS
SELECT
  run,
  step,
  cache_length_before,
  position,
  position - cache_length_before AS off_by,
  CASE
    WHEN cache_length_before IS NULL THEN NULL
    WHEN position = cache_length_before THEN 'ok'
    WHEN position = cache_length_before + 1 THEN 'one too far'
    WHEN position = 0 AND cache_length_before > 0 THEN 'reset to 0'
    ELSE 'wrong'
  END AS verdict
FROM main.step;

DROP VIEW IF EXISTS temp.head_summary;
CREATE TEMP VIEW head_summary AS
SELECT
  run, step, layer, head, entropy,
  f32_of_bits(max_weight) AS max_weight,
  max_row,
  f32_of_bits(self_weight) AS self_weight,
  f32_of_bits(first_weight) AS first_weight,
  f32_of_bits(previous_weight) AS previous_weight,
  CASE typeof(weight_sum) WHEN 'integer' THEN 1 + weight_sum / 9007199254740992.0 ELSE weight_sum END AS weight_sum
FROM main.head_stat
UNION ALL
SELECT
  h.run, h.step, h.layer, h.head,
  f32_entropy(h.weights),
  f32_max(h.weights),
  f32_argmax(h.weights),
  f32(h.weights, coalesce(s.cache_length_before, f32_count(h.weights) - 1)),
  f32(h.weights, 0),
  f32(h.weights, coalesce(s.cache_length_before, f32_count(h.weights) - 1) - 1),
  f32_sum(h.weights)
FROM main.head_step AS h
LEFT JOIN main.step AS s ON s.run = h.run AND s.step = h.step
WHERE NOT EXISTS (SELECT 1 FROM main.head_stat AS d
                  WHERE d.run = h.run AND d.step = h.step AND d.layer = h.layer AND d.head = h.head);

DROP VIEW IF EXISTS temp.step_summary;
CREATE TEMP VIEW step_summary AS
SELECT
  s.run AS run, s.step AS step, s.mode AS mode, t.text AS token_text, s.position AS position,
  nt.text AS chosen_token_text,
  s.logprob AS logprob,
  CASE WHEN EXISTS (SELECT 1 FROM main.step_stat AS d WHERE d.run = s.run AND d.step = s.step)
    THEN (SELECT d.entropy FROM main.step_stat AS d WHERE d.run = s.run AND d.step = s.step)
    ELSE (SELECT f32_softmax_entropy(o.logits) FROM main.step_vector AS o WHERE o.run = s.run AND o.step = s.step)
    END AS entropy,
  best.token_text AS top_token_text
FROM main.step AS s
LEFT JOIN main.token AS t ON t.token = s.token
LEFT JOIN main.step AS ns ON ns.run = s.run AND ns.step = s.step + 1
LEFT JOIN main.token AS nt ON nt.token = ns.token
LEFT JOIN main.top_token AS best ON best.run = s.run AND best.step = s.step AND best.rank = 1;
