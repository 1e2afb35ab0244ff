-- The length of each K row of layer 0, head by head: a dead row (0) or a runaway one stands out.
SELECT row, token_text, head, round(sum(k * k), 3) AS k_squared, round(sum(v * v), 3) AS v_squared
FROM cache
WHERE run = 1 AND layer = 0
GROUP BY row, step, token_text, head
ORDER BY row, head;
