-- The attention of one head in one step, with the tokens. Change run, step, layer and
-- head below; with all four given it is found at once.
SELECT row, row_token_text, round(score, 3) AS score, round(weight, 3) AS weight,
       substr('########################################', 1, CAST(40 * weight AS INTEGER)) AS bar
FROM attention
WHERE run = 1 AND step = 9 AND layer = 0 AND head = 1
ORDER BY row;
