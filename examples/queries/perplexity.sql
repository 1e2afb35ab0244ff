-- How surprised was the model by its text? The mean negative log-probability per token, in nats, for each run. exp() of it
-- is the perplexity; not every sqlite3 has exp(), so it is left to you.
SELECT run, (SELECT fault FROM run WHERE run.run = step.run) AS fault, count(logprob) AS tokens, round(-avg(logprob), 4) AS nats_per_token
FROM step
GROUP BY run;
