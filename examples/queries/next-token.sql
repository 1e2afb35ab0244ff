-- What did the model expect after each step of run 1, and what came? (Within the prompt what came was given, not chosen.)
SELECT s.step, s.token_text AS token, s.top_token_text AS expected, t.probability, s.chosen_token_text AS came, n.logprob AS its_logprob
FROM step_summary AS s
LEFT JOIN top_token AS t ON t.run = s.run AND t.step = s.step AND t.rank = 1
LEFT JOIN step AS n ON n.run = s.run AND n.step = s.step + 1
WHERE s.run = 1
ORDER BY s.step;
