-- How surprised was the model by its own text? The mean negative log-probability per generated token, in nats, for each run; exp()
-- of it is the perplexity (not every sqlite3 has exp()). Runs whose texts differ are not comparable: a loop is no surprise to the model
-- that is in it. The prompt is left out: it was given, not chosen.
SELECT run, (SELECT fault FROM run WHERE run.run = step.run) AS fault, count(logprob) AS tokens, round(-avg(logprob), 4) AS nats_per_token
FROM step
WHERE source = 'sampled'
GROUP BY run;
