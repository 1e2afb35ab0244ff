-- Two runs side by side (a correct and a faulty one, say): where do they choose differently, and at what cost? Runs 1 and 2 here:
-- change the numbers below. logprob is the token's own, as the step before saw it; the prompt's tokens were given, not chosen.
SELECT a.step, a.token_text AS token, b.token_text AS other_token, a.position, b.position AS other_position,
       a.top_token_text AS top, b.top_token_text AS other_top, round(a.logprob, 3) AS logprob, round(b.logprob, 3) AS other_logprob
FROM step_summary AS a
JOIN step_summary AS b ON b.run = 2 AND b.step = a.step
WHERE a.run = 1
ORDER BY a.step;
